"""One episode as a page to step through: the policy's observations, outputs and rewards."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs import filming
from jaxrl.envs.base import Discrete
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.envs.pictures import CannotRender, Shot
from jaxrl.evaluation.evaluator import EvaluationTask
from jaxrl.evaluation.policy_function import PolicyFunction, flat
from jaxrl.evaluation.result import mode_name
from jaxrl.evaluation.suites import video
from jaxrl.evaluation.trained_policy import TrainedPolicy

MAX_STEPS = 1000  # of a page; a longer episode is cut
_WIDTH = 320  # pixels of a picture at most
_MOST_UNITS = 128  # of the carry, that are shown; evenly spread


Page = Callable[[Mapping[str, str], Sequence[Mapping[str, Any]]], str]


def write(
    trained: TrainedPolicy, task: EvaluationTask, sample: bool, seed: int, file: str, page_of: Page
) -> str:
    """Plays an episode and writes its page; returns a line about it.

    Raises:
      CannotRender: an environment of Gymnasium has no pictures.
      ConfigError: the file cannot be written, or a package for pictures is missing.
      HostEnvError: the environment failed.
    """
    video.require_packages(".gif")
    rows, ended = play(trained, task, sample, seed)
    facts = {
        "environment": task.env,
        "run": trained.folder,
        "checkpoint": f"step {trained.step:,}",
        "actions": mode_name(sample),
        "seed": str(seed),
        "end": "the episode's" if ended else f"cut after {MAX_STEPS:,} steps",
    }
    page = page_of(facts, rows)
    with errors_as(ConfigError, f"`--inspect`: {file} cannot be written", OSError):
        os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(page)
    return f"episode of {len(rows)} steps: {file} ({len(page) / 1e3:.0f} kB)"


def play(
    trained: TrainedPolicy, task: EvaluationTask, sample: bool, seed: int
) -> tuple[list[dict[str, Any]], bool]:
    """Plays one episode; returns its steps, and False if it was cut off.

    A step has the `picture`, a PNG as base64 or "" if the environment cannot be drawn; the `action` as the
    environment took it; the `value` that the policy expects from here; the values behind its `choice` by
    name; the `carry` before the step, by some of its units; and the `reward` and `reports` of the action.
    """
    spec = trained.spec
    if spec.agents:
        raise CannotRender(f"{spec.name} has several agents; a page shows one")
    act = jax.jit(function := PolicyFunction.of(trained, sample))
    _, carry, *_ = function.example(1)
    film = filming.film(task.env, task.wrappers, seed)
    rows: list[dict[str, Any]] = []
    shot = next(film)
    reset = np.ones(1, bool)
    try:
        for t in range(MAX_STEPS):
            if shot.over:
                break
            out = jax.device_get(act(*video.arguments(function, shot, carry, reset, (seed, t))))
            row: dict[str, Any] = {"picture": _picture(shot), "carry": _units(carry)}
            carry = out["carry"]
            reset = np.zeros(1, bool)
            shot = film.send(counted_from_zero(spec.action_space, out["action"][0]))
            row["action"] = _numbers(out["action"][0])
            row["value"] = _round(float(out["value"][0]))
            row["choice"] = _choice(out["distribution"], isinstance(spec.action_space, Discrete))
            row["reward"] = _round(shot.reward)
            row["reports"] = {name: _round(x) for name, x in shot.reports.items()}
            rows.append(row)
    finally:
        film.close()
    return rows, shot.over


def _choice(distribution: dict[str, Any], single: bool) -> dict[str, list[float]]:
    """The parameters of the distribution; logits of one discrete action as probabilities."""
    if single and set(distribution) == {"logits"}:
        logits = np.asarray(distribution["logits"][0], np.float64)
        odds = np.exp(logits - logits.max())
        return {"probability": _numbers(odds / odds.sum())}
    if {"mean", "log_std"} <= set(distribution):
        mean = distribution["mean"][0]
        deviation = np.exp(np.asarray(distribution["log_std"][0], np.float64))
        if "logits" in distribution:  # a mixture: the likeliest component is shown
            likeliest = np.argmax(distribution["logits"][0])
            mean = mean[likeliest]
            deviation = deviation[likeliest]
        return {"mean": _numbers(mean), "deviation": _numbers(deviation)}
    return {name: _numbers(x[0]) for name, x in distribution.items()}


def _units(carry: Any) -> list[float]:
    """The carry as one list, of many units an even choice."""
    parts = [np.ravel(np.asarray(x)[0]) for _, x in flat(carry) if np.ndim(x) > 0]
    units = np.concatenate(parts) if parts else np.empty(0)
    return _numbers(units[:: max(1, math.ceil(len(units) / _MOST_UNITS))])


def _numbers(values: Any) -> list[float]:
    return [_round(x) for x in np.ravel(np.asarray(values, np.float64)).tolist()]


def _round(x: float) -> float:
    """Four digits, which is what a page shows; 0 for what is not finite, which JSON has not."""
    return float(f"{x:.4g}") if math.isfinite(x) else 0.0


def _picture(shot: Shot) -> str:
    from PIL import Image

    try:
        image = Image.fromarray(np.ascontiguousarray(shot.picture()))
    except CannotRender:
        return ""
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.BILINEAR)
    stream = io.BytesIO()
    image.quantize(64).save(stream, "png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()
