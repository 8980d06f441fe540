"""Variants: runs that differ only in the seed, the differences between them, and their comparability."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from jaxrl.config.declarations import settings
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.runs.records import Run, step_budget

# Fields that do not change what is learnt.
_INCIDENTAL = (
    "seed",
    "notes",
    "num_devices",
    "log.",
    "checkpoint.",
    "storage.",  # the address of each run's own copy
    "profile.",
    "evaluate.",
    "derived.",
    "host.num_workers",
    "host.timeout",
)
# Runs from before there were modes have `evaluate.sample` instead.
_MODES = ("evaluate.modes", "evaluate.sample")
# The task of a policy.
_ENVIRONMENT = ("env.name", "env.wrappers")
_BUDGET = ("stop.steps", "stop.seconds", "stop.wall_seconds", "stop.return", "stop.every_mode")
# What two runs must share to make the same updates from as many steps.
_UPDATES = ("env.num_envs", "rollout_length", "learning_rate", "gamma")
_MAX_NAME = 48


@dataclass(frozen=True)
class Variant:
    """Runs that differ only in the seed and, with `pool`, the environment.

    Attributes:
      name: the fields in which it differs from others, or its folder.
      runs: ordered by environment, then by path.
      differs: this variant's values of the fields in which variants differ.
    """

    name: str
    runs: tuple[Run, ...]
    differs: Mapping[str, Any]

    def of(self, environment: str) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if environment_of(run) == environment)


def environment_of(run: Run) -> str:
    """The environment with its wrappers, as one line."""
    wrappers = run.config.get("env.wrappers") or ()
    return " + ".join([str(run.config.get("env.name", "?")), *map(str, wrappers)])


def variants_of(runs: Sequence[Run], pool: bool, metric: str = "eval/return") -> list[Variant]:
    """Groups runs by configuration.

    Args:
      runs: in the order in which variants are to appear.
      pool: True if runs on different environments may belong together.
      metric: the metric that is compared; runs that measure it in another way are other variants.
    """
    measuring = _measuring(metric)
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    fields: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for run in runs:
        known = settings(run.config).items()
        config = {name: x for name, x in known if name in measuring or _counts(name, pool)}
        key = tuple(sorted((name, repr(x)) for name, x in config.items()))
        groups.setdefault(key, []).append(run)
        fields[key] = config
    names = {name for config in fields.values() for name in config}
    varied = sorted(n for n in names if len({repr(config.get(n)) for config in fields.values()}) > 1)
    differs = [{name: fields[key].get(name) for name in varied} for key in groups]
    found = [
        tuple(sorted(group, key=lambda run: (environment_of(run), run.path))) for group in groups.values()
    ]
    return [Variant(*parts) for parts in zip(_names(found, differs), found, differs, strict=True)]


def problems(variants: Sequence[Variant], pool: bool) -> list[str]:
    """Reasons why the runs are not comparable, a clause each; empty if they are comparable."""
    return list(_problems(variants, pool))


def other_updates(variants: Sequence[Variant]) -> list[str]:
    """A clause for each number of an update that differs between variants: then pace is not all that does."""
    runs = [run for variant in variants for run in variant.runs]
    found = []
    for name in sorted({name for run in runs for name in run.config}):
        values = sorted({_text(run.config.get(name)) for run in runs})
        if len(values) > 1 and (name in _UPDATES or name.rpartition(".")[2] in _UPDATES):
            found.append(f"the updates differ: {name} is {' and '.join(values)}")
    return found


def with_differences(variants: Sequence[Variant]) -> list[Variant]:
    """The variants with the fields in which they differ, under the names that they have."""
    alone = variants_of([run for variant in variants for run in variant.runs], pool=False)
    differs = {run.path: found.differs for found in alone for run in found.runs}
    return [dataclasses.replace(variant, differs=differs[variant.runs[0].path]) for variant in variants]


def describe_unfinished(run: Run) -> str:
    """A clause on the progress of a run that has not ended, or that crashed."""
    budget = step_budget(run.config)
    of = f" of {budget:,}" if budget else ""
    return f"{run.path} is not finished: {_steps_made(run):,}{of} steps"


def describe_lost_end(run: Run, metric: str) -> list[str]:
    """A clause on the last values of a metric, if they are not finite: the one before them is taken."""
    steps, _ = run.curve(metric)
    lost = [row["step"] for row in run.rows if metric in row and row[metric] is None]
    lost = [step for step in lost if steps.size and step > steps[-1]]
    if not lost:
        return []
    last, end = int(max(lost)), int(steps[-1])
    return [f"{metric} of {run.path} at step {last:,} is not finite: step {end:,} counts as its end"]


def describe_cut(run: Run) -> list[str]:
    """A clause on the episodes of a run's last evaluation that had no end: their returns are no returns."""
    cut, of = ((run.summary or {}).get(f"eval_{name}") for name in ("cut_off", "episodes"))
    if not cut:
        return []
    return [f"{cut} of {of} episodes of the last evaluation of {run.path} were cut off: they had no end"]


def _steps_made(run: Run) -> int:
    return int(max(row["step"] for row in run.rows))


def _problems(variants: Sequence[Variant], pool: bool) -> Iterator[str]:
    runs = [run for variant in variants for run in variant.runs]
    environments = sorted({environment_of(run) for run in runs})
    if len(environments) > 1 and not pool:
        yield f"the environments differ: {', '.join(environments)}"
    for variant in variants:
        if pool and (missing := [e for e in environments if not variant.of(e)]):
            yield f"{variant.name} has no run of {', '.join(missing)}"
        counts = {e: len(variant.of(e)) for e in environments if variant.of(e)}
        if pool and len({*counts.values()}) > 1:
            listed = ", ".join(f"{count} of {e}" for e, count in counts.items())
            yield f"{variant.name} has runs {listed}: an environment with more of them counts more"
    for field in _BUDGET:
        if len(budgets := sorted({_text(run.config.get(field)) for run in runs})) > 1:
            yield f"the budgets differ: {field} is {' and '.join(budgets)}"
    for run in runs:
        made = _steps_made(run)
        budget = step_budget(run.config)
        if run.summary is None:
            yield describe_unfinished(run)
        elif 0 < budget < made:
            yield f"{run.path} made {made:,} steps, more than its budget of {budget:,}: it was trained before"
    for variant in variants:
        seeds = Counter((environment_of(run), run.config.get("seed")) for run in variant.runs)
        for (environment, seed), count in seeds.items():
            if count > 1:
                yield f"{variant.name} has {count} runs of seed {seed} on {environment}: one counts twice"


def _measuring(metric: str) -> tuple[str, ...]:
    """The fields of `evaluate` that change the values of a metric: the episodes and how they are played."""
    kind, *name = metric.split("/")
    if kind != "eval":
        return ()
    if len(name) > 1 and name[0] in (GREEDY, SAMPLED):
        name = name[1:]
    if len(name) > 1:  # eval/CATEGORY/..., of a suite, which says how many episodes
        return (*_MODES, "evaluate.suite")
    unseen = ("evaluate.unseen",) if name[:1] and name[0].startswith("unseen_") else ()
    return (*_MODES, "evaluate.episodes", *unseen)


def _counts(name: str, pool: bool) -> bool:
    return not name.startswith(_INCIDENTAL) and not (pool and name in _ENVIRONMENT)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).lower()


def _names(groups: Sequence[Sequence[Run]], differs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields in short if they fit, else the folders that the runs share, else numbers."""
    short = [", ".join(f"{n.rpartition('.')[2]}={_text(x)}" for n, x in d.items()) for d in differs]
    folders = [_folder(group) for group in groups]
    for names in (short, folders):
        if len(set(names)) == len(names) and all(0 < len(name) <= _MAX_NAME for name in names):
            return names
    return [f"variant {number}" for number in range(1, len(groups) + 1)]


def _folder(runs: Sequence[Run]) -> str:
    """The innermost folder that holds all the runs; a single run's own folder."""
    paths = [PurePosixPath(run.path).parts for run in runs]
    shared = list(itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))
    return shared[-1][0] if shared else ""
