"""Statistics of few runs (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice"): interquartile means, stratified bootstrap intervals, probability of improvement, profiles.

Scores come in strata, one array `[..., runs]` per environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
_BATCH = 1000  # resamples at once, which bounds the memory

Strata = Sequence[np.ndarray]


def iqm(*strata: np.ndarray, axis: int = -1) -> Any:
    """Mean of the middle half of all scores together; the plain mean of fewer than four scores."""
    from scipy import stats

    return stats.trim_mean(np.concatenate(strata, axis=axis), 0.25, axis=axis)


def improvement(*strata: np.ndarray, axis: int = -1) -> Any:
    """P(X > Y): the probability that a run of X beats one of Y, ties count half; averaged over strata.

    Args:
      *strata: X of each environment, then Y of each environment.
      axis: the axis of the runs.
    """
    half = len(strata) // 2
    shares = [_beats(x, y, axis) for x, y in zip(strata[:half], strata[half:], strict=True)]
    return np.mean(shares, axis=0)


def above(*strata: np.ndarray, axis: int = -1) -> Any:
    """Performance profile: the share of runs above each threshold, averaged over strata.

    Args:
      *strata: for each environment bool `[thresholds, runs]`, True if the run is above.
      axis: the axis of the runs.
    """
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def interval(
    strata: Strata, statistic: Callable[..., Any], resamples: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Percentile bootstrap interval of a statistic; runs are sampled within each stratum.

    Args:
      strata: arrays `[..., runs]`; leading axes are treated one by one.
      statistic: `(*strata, axis)` to `[...]`.
      resamples: the number of bootstrap samples.

    Returns:
      (low, high), or None if a stratum has a single run, which has no spread.
    """
    from scipy import stats

    if any(stratum.shape[-1] < 2 for stratum in strata):
        return None
    result = stats.bootstrap(
        tuple(strata),
        statistic,
        n_resamples=resamples,
        batch=_BATCH,
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),  # the same report from the same runs
    ).confidence_interval
    return result.low, result.high


def _beats(x: np.ndarray, y: np.ndarray, axis: int) -> Any:
    pairs = np.expand_dims(np.moveaxis(x, axis, -1), -1) - np.expand_dims(np.moveaxis(y, axis, -1), -2)
    return np.mean((np.sign(pairs) + 1) / 2, axis=(-2, -1))
