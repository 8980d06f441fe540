"""The tables of a comparison as text, the same for the terminal and every report."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from jaxrl.comparison.results import Comparison, Estimate, Outcome
from jaxrl.config import text
from jaxrl.reporting.pages.page import Table


def returns(comparison: Comparison) -> Table:
    """Final and best return, and the probability of beating the baseline."""
    headings = ("variant", "runs", "final return", "best return", "P(beats baseline)")
    rows = [
        (o.name, str(len(o.runs)), _estimate(o.final), _estimate(o.best), _improvement(o, comparison))
        for o in comparison.outcomes
    ]
    return Table("Return: interquartile mean and 95% interval", headings, rows)


def costs(comparison: Comparison) -> Table:
    """Sample efficiency, speed and memory; the first only of runs with a curve of the metric."""
    efficiency = (f"reached {text.number(comparison.threshold)}", "after steps", "after seconds")
    headings = (
        "variant",
        *(efficiency if comparison.has_curves else ()),
        "trained",
        "steps per second",
        "speed-up",
        "host memory",
        "device memory",
    )
    rows = [
        (
            o.name,
            *(_efficiency(o) if comparison.has_curves else ()),
            text.count(o.steps) + ("" if o.seconds is None else f" in {o.seconds:.0f} s"),
            _pace(o),
            "-" if o.speedup is None else f"{o.speedup:.2f}x",
            text.size(o.peak_host_bytes),
            text.size(o.peak_device_bytes),
        )
        for o in comparison.outcomes
    ]
    title = "throughput and memory"
    return Table(
        f"Sample efficiency, {title}" if comparison.has_curves else title.capitalize(), headings, rows
    )


def _efficiency(o: Outcome) -> tuple[str, str, str]:
    """The number of runs that reached the threshold, and the steps and seconds until then."""
    return (
        f"{o.reached} of {len(o.runs)}",
        "-" if o.steps_to_threshold is None else text.count(o.steps_to_threshold),
        "-" if o.seconds_to_threshold is None else f"{o.seconds_to_threshold:.1f}",
    )


def differences(comparison: Comparison) -> Table:
    """The fields in which variants differ."""
    fields = sorted({name for o in comparison.outcomes for name in o.differs})
    rows = [(o.name, *(_value(o.differs.get(name)) for name in fields)) for o in comparison.outcomes]
    return Table("What differs", ("variant", *fields), rows)


def runs(comparison: Comparison) -> Table:
    """Every run with its final return, and its evaluation returns by mode if some runs evaluate in both."""
    modes = sorted({mode for o in comparison.outcomes for mode in o.by_mode})
    rows = []
    for o in comparison.outcomes:
        by_mode = [o.by_mode.get(mode, [None] * len(o.runs)) for mode in modes]
        for path, seed, final, *lasts in zip(o.runs, o.seeds, o.finals, *by_mode, strict=True):
            shown = (text.number(x) for x in (final, *lasts))
            short = str(PurePosixPath(*PurePosixPath(path).parts[-3:]))
            rows.append((short, o.name, ", ".join(o.devices) or "-", str(seed), *shown))
    return Table("Runs", ("run", "variant", "device", "seed", "final return", *modes), rows, names=3)


def all_of(comparison: Comparison) -> list[Table]:
    """The tables in order, without empty ones."""
    tables = [returns(comparison), costs(comparison), differences(comparison), runs(comparison)]
    return [table for table in tables if len(table.headings) > 1]


def introduction(comparison: Comparison) -> str:
    """One sentence: the number of runs, their environments, the metric."""
    count = sum(len(o.runs) for o in comparison.outcomes)
    variants = len(comparison.outcomes)
    where = ", ".join(comparison.environments)
    made = f"{text.counted(count, 'run')} of {text.counted(variants, 'variant')}"
    return f"{made} on {where}; returns are {comparison.metric}."


def notes(comparison: Comparison) -> list[str]:
    """Notes on reading the numbers."""
    found = [
        "An interquartile mean is the mean of the middle half of all runs; of fewer than four runs "
        "it is their mean.",
        "Intervals hold 95% of bootstrap resamples of the runs of each environment; a "
        "variant with a single run in an environment has none. With few runs they are "
        "too narrow rather than too wide.",
        f"The baseline is {comparison.baseline}. P(beats baseline) is the chance that a run of the variant "
        "ends with a higher return than one of the baseline; ties count half. Two single runs have none.",
        "Steps per second are medians over runs, with the lowest and the highest; "
        "seconds of compiling, evaluating and saving are left out. Members of a "
        "population share a program: the speed is for all of them together, the seconds "
        "for the whole. Memory is the peak of any run; '-' where it was not recorded.",
    ]
    if comparison.has_curves:
        found.insert(
            -1,
            f"Steps and seconds are medians over runs until {comparison.metric} first reached "
            f"{text.number(comparison.threshold)}, as finely as it was measured; '-' where half of them "
            "never did. Seconds are of training, without compilation.",
        )
    else:
        found.insert(
            0,
            f"Each run has a single {comparison.metric}; the learning curves are of {comparison.drawn}, that "
            "of training.",
        )
    if comparison.scales:
        spans = [f"{e}: {text.number(a)} to {text.number(b)}" for e, (a, b) in comparison.scales.items()]
        scaled = "Returns are scaled: 0 to 1 stand for the lowest and the highest of any run. "
        found.insert(0, scaled + "; ".join(spans) + ".")
    return [*(f"{line[0].upper()}{line[1:]}." for line in comparison.skipped), *found]


def _estimate(x: Estimate) -> str:
    if x.low is None or x.high is None:
        return text.number(x.value)
    return f"{text.number(x.value)} [{text.number(x.low)}, {text.number(x.high)}]"


def _improvement(outcome: Outcome, comparison: Comparison) -> str:
    if outcome.improvement is None:
        return "baseline" if outcome.name == comparison.baseline else "-"
    x = outcome.improvement
    return f"{x.value:.2f}" + ("" if x.low is None else f" [{x.low:.2f}, {x.high:.2f}]")


def _pace(outcome: Outcome) -> str:
    if outcome.steps_per_second is None:
        return "-"
    low, high = outcome.steps_per_second_range
    spread = f" [{text.pace(low)}, {text.pace(high)}]" if len(outcome.runs) > 1 else ""
    return text.pace(outcome.steps_per_second) + spread


def _value(x: Any) -> str:
    return str(x).lower() if isinstance(x, bool) or x is None else str(x)
