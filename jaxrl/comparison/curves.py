"""Curves of runs: the values of a metric over steps, their mean, and when they reach a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.comparison import statistics
from jaxrl.comparison.variants import Variant, environment_of
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.reporting.pages.figures import Curve
from jaxrl.runs.records import Run

# The metric of training that is sampled for runs that evaluate once.
TRAINING_RETURN = "episode/return"
# Steps and values.
Points = tuple[np.ndarray, np.ndarray]

_MAX_CURVE_POINTS = 100


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


def span_of(curves: Mapping[str, Points], runs: Iterable[Run], environment: str) -> tuple[float, float]:
    """The lowest and the highest return of any run in the environment."""
    return span([x for run in runs if environment_of(run) == environment for x in curves[run.path][1]])


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
    first = max(steps[0] for steps, _ in curves.values())
    x = np.unique(np.concatenate([steps for steps, _ in curves.values()]))
    x = x[x >= first]
    x = x[np.unique(np.linspace(0, len(x) - 1, _MAX_CURVE_POINTS).round().astype(int))]
    strata = [
        np.stack([np.interp(x, *curves[run.path]) for run in variant.of(environment)], axis=-1)
        for environment in sorted({environment_of(run) for run in variant.runs})
    ]
    return with_interval(x, strata, statistics.iqm, resamples)


def with_interval(
    x: np.ndarray, strata: Sequence[np.ndarray], statistic: Callable[..., Any], resamples: int
) -> Curve:
    """A statistic of `strata` [..., runs], with its interval, over x."""
    value = statistic(*strata)
    bounds = statistics.interval(strata, statistic, resamples)
    low, high = ([], []) if bounds is None else (bound.tolist() for bound in bounds)
    return Curve(x.tolist(), value.tolist(), low, high)
