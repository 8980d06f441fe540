"""The results of a comparison as plain numbers, for JSON and for the report."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxrl.comparison import statistics
from jaxrl.comparison.statistics import Points
from jaxrl.comparison.variants import Variant, environment_of
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.reporting.pages.figures import Curve
from jaxrl.runs.members import member_folders, pace_of_all, population_of
from jaxrl.runs.records import Run

_PROFILE_POINTS = 101
# Share of the way from the lowest return at the start to the highest final one.
_DEFAULT_THRESHOLD = 0.9


@dataclass(frozen=True)
class Options:
    """The options of a comparison.

    Attributes:
      metric: key of metrics.jsonl that is taken as the return.
      threshold: return that measures sample efficiency when first reached, scaled with `pool`; None for
        nine tenths of the way from the lowest return at the start to the highest final one.
      baseline: name of the variant with which others are compared; None for the first.
      pool: average over environments, each scaled to [0, 1].
    """

    metric: str = "eval/return"
    threshold: float | None = None
    baseline: str | None = None
    pool: bool = False
    resamples: int = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval, which is missing if an environment has a single run."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The results of one variant.

    Attributes:
      name, differs: see `Variant`.
      runs, seeds: paths, and their seeds.
      final, best: interquartile means over runs of the last and the highest return.
      finals: the last return of each run.
      improvement: probability that a run beats a run of the baseline; None for the baseline itself, and
        where both have a single run.
      steps, seconds: medians over runs of what was trained, see `Run.seconds`; None if half of them have not
        recorded it.
      reached: the number of runs that reached the threshold.
      steps_to_threshold, seconds_to_threshold: medians over runs; None if half never reached it.
      steps_per_second, steps_per_second_range: median over runs; lowest and highest. For members of a
        population of the whole program.
      speedup: the median pace relative to the baseline's.
      peak_host_bytes, peak_device_bytes: the highest of any run; None if not recorded.
      devices: the devices of the runs.
      curve: interquartile mean over steps of the plotted metric.
      profile: share of runs whose final return is above x.
      stage_ends: steps at which a stage of one of the runs ended, of training or of a curriculum.
      by_mode: the last return of each run's evaluations in each mode, if some run plays both; None of others.
    """

    name: str
    differs: Mapping[str, Any]
    runs: list[str]
    seeds: list[Any]
    final: Estimate
    best: Estimate
    finals: list[float]
    improvement: Estimate | None
    steps: float
    seconds: float | None
    reached: int
    steps_to_threshold: float | None
    seconds_to_threshold: float | None
    steps_per_second: float | None
    steps_per_second_range: list[float]
    speedup: float | None
    peak_host_bytes: float | None
    peak_device_bytes: float | None
    devices: list[str]
    curve: Curve
    profile: Curve
    stage_ends: list[float] = field(default_factory=list)
    by_mode: Mapping[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The results of all variants.

    Attributes:
      drawn: the metric of the learning curves; not `metric` if it is a single point in each run.
      scales: the returns of each environment that are scaled to 0 and 1, if pooled.
      problems: reasons why the runs are not comparable, if they were compared by force.
      skipped: the runs that were left out, and last values that are not finite, with reasons.
    """

    metric: str
    drawn: str
    environments: list[str]
    scales: Mapping[str, tuple[float, float]]
    threshold: float
    baseline: str
    problems: list[str]
    skipped: list[str]
    outcomes: list[Outcome]

    @property
    def has_curves(self) -> bool:
        """True if some run has more of the metric than a single point."""
        return self.drawn == self.metric


def compare(
    variants: Sequence[Variant], problems: Sequence[str], options: Options, skipped: Sequence[str] = ()
) -> Comparison:
    """Computes all results; `problems` and `skipped` are passed on, see `Comparison`.

    Raises:
      ConfigError: a run lacks the metric, there is no such baseline, or scaled returns never reach the
        threshold.
    """
    runs = [run for variant in variants for run in variant.runs]
    environments = sorted({environment_of(run) for run in runs})
    names = [variant.name for variant in variants]
    baseline = options.baseline or names[0]
    if baseline not in names:
        raise ConfigError(f"`--baseline` (={baseline!r}) is no variant{did_you_mean(baseline, names)}")
    curves = {run.path: statistics.curve_of(run, options.metric) for run in runs}
    pooled = options.pool and len(environments) > 1
    if pooled and options.threshold is not None and not 0 <= options.threshold <= 1:
        raise ConfigError(
            f"`--threshold` (={options.threshold:g}) must be from 0 to 1 with `--pool`: returns are scaled "
            "to the lowest and the highest of each environment"
        )
    drawn = options.metric if pooled else statistics.drawn_metric(runs, options.metric)
    scales = {}
    if pooled:
        for e in environments:  # the lowest and the highest return of any run in it
            there = [run.path for run in runs if environment_of(run) == e]
            scales[e] = statistics.span([x for path in there for x in curves[path][1]])
            curves |= {path: statistics.scale_curve(curves[path], scales[e]) for path in there}
    shown = curves if drawn == options.metric else {run.path: statistics.curve_of(run, drawn) for run in runs}
    scored = [_Scored.of(variant, curves, environments, pooled) for variant in variants]
    threshold = options.threshold
    if threshold is None:
        start = min(values[0] for _, values in curves.values())
        end = max(statistics.iqm(*each.last) for each in scored)
        threshold = start + _DEFAULT_THRESHOLD * (end - start)
    reference = scored[names.index(baseline)]
    low, high = statistics.span([x for s in scored for x in s.finals])
    margin = 0.02 * (high - low)
    grid = np.linspace(low - margin, high + margin, _PROFILE_POINTS)
    resamples = options.resamples
    outcomes = []
    for each in scored:
        reached = [statistics.first_reach(run, curves[run.path], threshold) for run in each.variant.runs]
        curve = statistics.mean_curve(each.variant, shown, resamples)
        outcomes.append(_outcome(each, reference, reached, curve, grid, resamples))
    return Comparison(
        metric=options.metric,
        drawn=drawn,
        environments=environments,
        scales=scales,
        threshold=float(threshold),
        baseline=baseline,
        problems=list(problems),
        skipped=list(skipped),
        outcomes=outcomes,
    )


@dataclass(frozen=True)
class _Scored:
    """A variant, and its last and highest returns by environment.

    `environments` are those of the returns, in their order, if they are pooled.
    """

    variant: Variant
    environments: list[str]
    last: list[np.ndarray]
    highest: list[np.ndarray]

    @classmethod
    def of(
        cls, variant: Variant, curves: Mapping[str, Points], environments: Iterable[str], pooled: bool
    ) -> _Scored:
        played = [e for e in environments if variant.of(e)]

        def strata(score: Callable[[np.ndarray], float]) -> list[np.ndarray]:
            return [np.array([score(curves[run.path][1]) for run in variant.of(e)]) for e in played]

        last, highest = strata(lambda values: float(values[-1])), strata(np.max)
        return cls(variant, played if pooled else [], last, highest)

    @property
    def finals(self) -> list[float]:
        return [float(x) for stratum in self.last for x in stratum]


def _outcome(
    scored: _Scored,
    reference: _Scored,
    reached: Sequence[tuple[float, float]],
    curve: Curve,
    grid: np.ndarray,
    resamples: int,
) -> Outcome:
    variant = scored.variant
    paces = _paces(variant)
    base = _paces(reference.variant)
    itself = scored is reference
    # With --force, a variant may lack environments of the baseline, or have others.
    matched = scored.environments == reference.environments
    single = len(variant.runs) == len(reference.variant.runs) == 1
    beats = [*scored.last, *reference.last] if matched and not itself and not single else None
    above = [stratum > grid[:, None] for stratum in scored.last]
    return Outcome(
        name=variant.name,
        differs=variant.differs,
        runs=[run.path for run in variant.runs],
        seeds=[run.config.get("seed") for run in variant.runs],
        final=_estimate(scored.last, statistics.iqm, resamples),
        best=_estimate(scored.highest, statistics.iqm, resamples),
        finals=scored.finals,
        improvement=_estimate(beats, statistics.improvement, resamples) if beats else None,
        steps=plain.median(max(row["step"] for row in run.rows) for run in variant.runs),
        seconds=_finite(plain.median(run.seconds or math.inf for run in variant.runs)),
        reached=sum(math.isfinite(steps) for steps, _ in reached),
        steps_to_threshold=_finite(plain.median(steps for steps, _ in reached)),
        seconds_to_threshold=_finite(plain.median(seconds for _, seconds in reached)),
        steps_per_second=plain.median(paces) if paces else None,
        steps_per_second_range=[min(paces), max(paces)] if paces else [],
        speedup=plain.median(paces) / plain.median(base) if paces and base else None,
        peak_host_bytes=_peak(variant, "host"),
        peak_device_bytes=_peak(variant, "device"),
        devices=sorted({str(run.summary.get("device")) for run in variant.runs if run.summary}),
        curve=curve,
        profile=statistics.with_interval(grid, above, statistics.above, resamples),
        stage_ends=sorted({step for run in variant.runs for step in run.stage_ends}),
        by_mode=_by_mode(variant),
    )


def _by_mode(variant: Variant) -> dict[str, list[float | None]]:
    def last(run: Run, mode: str) -> float | None:
        _, values = run.curve(f"eval/{mode}/return")
        return float(values[-1]) if values.size else None

    found = {mode: [last(run, mode) for run in variant.runs] for mode in (GREEDY, SAMPLED)}
    return found if any(x is not None for values in found.values() for x in values) else {}


def _estimate(strata: Sequence[np.ndarray], statistic: Callable[..., Any], resamples: int) -> Estimate:
    value = float(statistic(*strata))
    bounds = statistics.interval(strata, statistic, resamples)
    return Estimate(value) if bounds is None else Estimate(value, float(bounds[0]), float(bounds[1]))


def _paces(variant: Variant) -> list[float]:
    """Steps per second of each run: its last process's, or the median of its log intervals if unfinished.

    Members of a population train in one program, whose pace counts all of them together.
    """
    populations = {folder for run in variant.runs if (folder := population_of(run.path))}
    together = {folder: pace_of_all(folder) for folder in populations}
    found = []
    for run in variant.runs:
        folder = population_of(run.path) or ""
        if pace := together.get(folder):
            found.append(pace)
            continue
        rows = [x for row in run.rows if (x := row.get("time/steps_per_second"))]
        own = run.summary.get("steps_per_second") if run.summary else plain.median(rows or [0.0])
        found += [float(own) * (len(member_folders(folder)) if folder else 1)] if own else []
    return found


def _peak(variant: Variant, where: str) -> float | None:
    key = f"{where}/peak_memory_bytes"
    found = [row[key] for run in variant.runs for row in run.rows if row.get(key)]
    found += [
        peak for run in variant.runs if run.summary
        if (peak := run.summary.get(f"peak_memory_bytes.{where}"))
    ]  # fmt: skip
    return max(found, default=None)


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
