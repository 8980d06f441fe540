"""The summary of the episodes of a level, of a category or of a whole suite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from jaxrl.evaluation.suites.definition import metric_name
from jaxrl.evaluation.suites.levels import Outcomes

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Summary:
    """Over all episodes together; None if a level has no rule or no cost, or nothing succeeded.

    Attributes:
      episodes: how many.
      success_rate, success_low, success_high: share of successes, and its 95% interval (Wilson 1927).
      return_mean, return_std: raw returns.
      length: mean steps of all episodes.
      steps_to_completion: mean steps of the successful ones.
      efficiency: success rate over mean normalised steps.
      cost: mean over the episodes of the summed cost.
      safety: share of the episodes without any cost.
      unfinished: episodes cut off, for the environment has no time limit.
    """

    episodes: int
    success_rate: float | None
    success_low: float | None
    success_high: float | None
    return_mean: float
    return_std: float
    length: float
    steps_to_completion: float | None
    efficiency: float | None
    cost: float | None
    safety: float | None
    unfinished: int


def summarize(parts: Sequence[Outcomes]) -> Summary:
    """Pools the episodes of one or several levels: each episode counts the same."""
    score, length, normalized, finished = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("score", "length", "normalized", "finished")
    )
    n = len(score)
    success = _pool([p.success for p in parts])
    cost = _pool([p.cost for p in parts])
    rate = None if success is None else float(success.mean())
    low, high = (None, None) if rate is None else _wilson(rate, n)
    succeeded = success is not None and success.any()
    return Summary(
        episodes=n,
        success_rate=rate,
        success_low=low,
        success_high=high,
        return_mean=float(score.mean()),
        return_std=float(score.std(ddof=1)) if n > 1 else 0.0,
        length=float(length.mean()),
        steps_to_completion=float(length[success].mean()) if succeeded else None,
        efficiency=None if rate is None else rate / float(normalized.mean()),
        cost=None if cost is None else float(cost.mean()),
        safety=None if cost is None else float((cost <= 0).mean()),
        unfinished=int((~finished).sum()),
    )


def episode_rows(part: Outcomes) -> list[dict[str, Any]]:
    """A row for each episode of a level; `success` and `cost` if the level has a rule or a cost."""
    columns = {
        "return": part.score,
        "length": part.length,
        "success": part.success,
        "cost": part.cost,
        "finished": part.finished,
    }
    known = {name: values.tolist() for name, values in columns.items() if values is not None}
    return [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]


def metrics(categories: Mapping[str, Sequence[Outcomes]]) -> dict[str, float]:
    """`eval/CATEGORY/...` of the results of a suite's levels, and `eval/all/...` of all episodes together.

    Values that no rule of the suite needs are left out.
    """
    row: dict[str, float] = {}
    everything = [outcomes for category in categories.values() for outcomes in category]
    named = {metric_name(name): outcomes for name, outcomes in categories.items()} | {"all": everything}
    for name, outcomes in named.items():
        found = summarize(outcomes)
        values = {
            "success_rate": found.success_rate,
            "efficiency": found.efficiency,
            "safety": found.safety,
            "cost": found.cost,
            "steps": found.length,
            "return": found.return_mean,
        }
        row |= {f"eval/{name}/{key}": value for key, value in values.items() if value is not None}
    return row


def _pool(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """None unless all have it: a rate over some of the levels would pass for one over all."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _wilson(rate: float, n: int) -> tuple[float, float]:
    scale = 1 + _Z**2 / n
    center = (rate + _Z**2 / (2 * n)) / scale
    half = _Z * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n * n)) / scale
    return max(0.0, center - half), min(1.0, center + half)
