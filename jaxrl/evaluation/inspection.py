"""One episode as a page to step through: the policy's observations, outputs and rewards."""

from __future__ import annotations

import base64
import dataclasses
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
from jaxrl.envs.numbering import counted_from_zero, own_numbers
from jaxrl.envs.pictures import CannotRender, Shot
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.evaluation.modes import mode_name
from jaxrl.evaluation.policy_function import PolicyFunction, flat
from jaxrl.evaluation.suites import video
from jaxrl.evaluation.trained_policy import TrainedPolicy

MAX_STEPS = 1000  # of a page; a longer episode is cut
_WIDTH = 320  # pixels of a picture at most
_MOST_UNITS = 128  # of the carry, that are shown; evenly spread


@dataclasses.dataclass(frozen=True)
class EpisodeRow:
    """One step of an episode.

    Attributes:
      picture: a PNG, or "" if the environment cannot be drawn; base64.
      action: the numbers that the environment took; None after the last step.
      value: the policy's estimate of the return from here.
      choice: the values behind the action, by name: probabilities, or means and deviations, or Q-values.
      reward: of this action.
      carry: of the core before this step, by its first units.
      reports: the environment's reports of this action, by name.
    """

    picture: str
    action: list[float]
    value: float
    choice: dict[str, list[float]]
    reward: float
    carry: list[float]
    reports: dict[str, float]


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
    page = page_of(facts, [dataclasses.asdict(row) for row in rows])
    with errors_as(ConfigError, f"`--inspect`: {file} cannot be written", OSError):
        os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(page)
    return f"episode of {len(rows)} steps: {file} ({len(page) / 1e3:.0f} kB)"


def play(
    trained: TrainedPolicy, task: EvaluationTask, sample: bool, seed: int
) -> tuple[list[EpisodeRow], bool]:
    """Plays one episode; returns its steps, and False if it was cut off."""
    if trained.spec.agents:
        raise CannotRender(f"{trained.spec.name} has several agents; a page shows one")
    spec = trained.spec
    act = jax.jit(function := PolicyFunction.of(trained, sample))
    _, carry, *_ = function.example(1)
    film = filming.film(task.env, task.wrappers, seed)
    rows: list[EpisodeRow] = []
    shot = next(film)
    reset = np.ones(1, bool)
    try:
        for t in range(MAX_STEPS):
            if shot.over:
                break
            rest = [] if shot.mask is None else [shot.mask[None]]
            rest += [np.array([seed, t], np.uint32)] if sample else []
            obs = jax.tree.map(lambda x: np.asarray(x)[None], shot.obs)
            out = jax.device_get(act(own_numbers(spec.observation_space, obs), carry, reset, *rest))
            picture = _picture(shot)
            before = _units(carry)
            carry = out["carry"]
            reset = np.zeros(1, bool)
            shot = film.send(counted_from_zero(spec.action_space, out["action"][0]))
            rows.append(
                EpisodeRow(
                    picture=picture,
                    action=_numbers(out["action"][0]),
                    value=_round(float(out["value"][0])),
                    choice=_choice(out["distribution"], isinstance(spec.action_space, Discrete)),
                    reward=_round(shot.reward),
                    carry=before,
                    reports={name: _round(x) for name, x in shot.reports.items()},
                )
            )
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
