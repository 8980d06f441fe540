"""Statistics of few runs (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice"): interquartile means, stratified bootstrap intervals, probability of improvement, profiles.

Scores come in strata, one array `[..., runs]` per environment. Below them are the curves of runs: values of a
metric over steps, their mean, and when they reach a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.comparison.variants import Variant, environment_of
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.reporting.pages.figures import Curve
from jaxrl.runs.records import Run

CONFIDENCE = 0.95
_BATCH = 1000  # resamples at once, which bounds the memory

TRAINING_RETURN = "episode/return"  # the metric of training that is sampled for runs that evaluate once
_MAX_CURVE_POINTS = 100

Strata = Sequence[np.ndarray]
Points = tuple[np.ndarray, np.ndarray]  # steps, values


def iqm(*strata: np.ndarray, axis: int = -1) -> Any:
    """Mean of the middle half of all scores together; the plain mean of fewer than four scores."""
    from scipy import stats

    return stats.trim_mean(np.concatenate(strata, axis=axis), 0.25, axis=axis)


def improvement(*strata: np.ndarray, axis: int = -1) -> Any:
    """P(X > Y): the probability that a run of X beats one of Y, ties count half; averaged over strata.

    The strata are X of each environment, then Y of each environment; runs are along `axis`.
    """
    half = len(strata) // 2
    shares = [_beats(x, y, axis) for x, y in zip(strata[:half], strata[half:], strict=True)]
    return np.mean(shares, axis=0)


def above(*strata: np.ndarray, axis: int = -1) -> Any:
    """Performance profile: the share of runs above each threshold, averaged over strata.

    A stratum is bool `[thresholds, runs]`, True if the run is above; runs are along `axis`.
    """
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def interval(
    strata: Strata, statistic: Callable[..., Any], resamples: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Percentile bootstrap interval of a statistic; runs are sampled within each stratum.

    Args:
      strata: arrays `[..., runs]`; leading axes are treated one by one.
      statistic: `(*strata, axis)` to `[...]`.

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


def curve_of(run: Run, metric: str) -> Points:
    """The values of a metric in a run; raises ConfigError if it has none."""
    steps, values = run.curve(metric)
    if not steps.size:
        keys = {key for row in run.rows for key in row} - {"step", "time", "steps"}
        raise ConfigError(f"`--metric` (={metric!r}): {run.path} has none{did_you_mean(metric, keys)}")
    return steps, values


def drawn_metric(runs: Iterable[Run], metric: str) -> str:
    """The metric of the figure: the training return if `metric` is one point of each run and no curve."""
    counts = [(run.curve(metric)[0].size, run.curve(TRAINING_RETURN)[0].size) for run in runs]
    return TRAINING_RETURN if all(found == 1 and drawn > 1 for found, drawn in counts) else metric


def scale_curve(curve: Points, scale: tuple[float, float]) -> Points:
    """The curve with the ends of a scale at 0 and 1."""
    low, high = scale
    return curve[0], (curve[1] - low) / (high - low)


def span(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value, widened if they are the same."""
    low = float(min(values))
    high = float(max(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def first_reach(run: Run, curve: Points, threshold: float) -> tuple[float, float]:
    """Steps and seconds until the curve first reaches the threshold; infinite if it never does."""
    steps, values = curve
    found = np.flatnonzero(values >= threshold)
    if not found.size:
        return math.inf, math.inf
    at = float(steps[found[0]])
    seconds = run.seconds_at(at)
    return at, math.inf if seconds is None else seconds


def mean_curve(variant: Variant, curves: Mapping[str, Points], resamples: int) -> Curve:
    """The mean from the first step that all runs have; a run that ended early keeps its last return."""
    own = [curves[run.path] for run in variant.runs]
    first = max(steps[0] for steps, _ in own)
    x = np.unique(np.concatenate([steps for steps, _ in own]))
    x = x[x >= first]
    x = x[np.unique(np.linspace(0, len(x) - 1, _MAX_CURVE_POINTS).round().astype(int))]
    strata = [
        np.stack([np.interp(x, *curves[run.path]) for run in variant.of(environment)], axis=-1)
        for environment in sorted({environment_of(run) for run in variant.runs})
    ]
    return with_interval(x, strata, iqm, resamples)


def with_interval(
    x: np.ndarray, strata: Sequence[np.ndarray], statistic: Callable[..., Any], resamples: int
) -> Curve:
    """A statistic of `strata` [..., runs], with its interval, over x."""
    value = statistic(*strata)
    bounds = interval(strata, statistic, resamples)
    low, high = ([], []) if bounds is None else (bound.tolist() for bound in bounds)
    return Curve(x.tolist(), value.tolist(), low, high)
