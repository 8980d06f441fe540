"""Comparison of runs: variants of a configuration, statistics of their returns, and a report."""

from collections.abc import Sequence

from jaxrl.comparison.results import Comparison, Options, compare
from jaxrl.comparison.variants import (
    Variant,
    describe_cut,
    describe_lost_end,
    describe_unfinished,
    other_updates,
    problems,
    variants_of,
    with_differences,
)
from jaxrl.config import ConfigError
from jaxrl.runs import records
from jaxrl.runs.records import Run

__all__ = ["Options", "Variant", "compare", "compare_folders", "compare_pair", "problems", "variants_of"]


def compare_folders(paths: Sequence[str], options: Options, force: bool = False) -> Comparison:
    """Compares the runs in some folders; runs that crashed are left out, and named.

    Args:
      paths: run folders, folders of them, or patterns.
      force: compare also runs that are not comparable or not finished.

    Raises:
      ConfigError: there are no such runs, they lack the metric, or they are not comparable.
    """
    runs, skipped = _runs(paths, options, force)
    variants = variants_of(runs, options.pool, options.metric)
    return _compare(variants, problems(variants, options.pool), options, skipped, force)


def compare_pair(sequential: str, parallel: str, options: Options, force: bool = False) -> Comparison:
    """Compares a run with one thread of environments with a run with several, by equal updates.

    Args:
      sequential, parallel: run folders.
      force: compare also runs that are not comparable or not finished.

    Raises:
      ConfigError: a folder has not one run, the runs lack the metric, or they are not comparable.
    """
    variants = []
    skipped = []
    for name, path in (("sequential", sequential), ("parallel", parallel)):
        runs, left = _runs([path], options, force)
        if len(runs) != 1:
            raise ConfigError(f"`--{name}` (={path!r}) must hold one run, not {len(runs)}")
        skipped += left
        variants.append(Variant(name, tuple(runs), {}))
    found = [*problems(variants, pool=False), *other_updates(variants)]
    return _compare(with_differences(variants), found, options, skipped, force)


def _compare(
    variants: Sequence[Variant], found: list[str], options: Options, skipped: list[str], force: bool
) -> Comparison:
    if found and not force:
        raise ConfigError(f"the runs are not comparable: {'; '.join(found)} (--force compares anyway)")
    return compare(variants, found, options, skipped)


def _runs(paths: Sequence[str], options: Options, force: bool) -> tuple[list[Run], list[str]]:
    """The runs in some folders, and clauses on the skipped ones."""
    runs: list[Run] = []
    skipped: list[str] = []
    for path in records.find(paths):
        try:
            run = records.read(path)
        except ConfigError as error:
            skipped.append(f"left out: {error}")
            continue
        # An unfinished run can be compared by force, unless it ended before its first evaluation.
        if run.summary is None and not (force and run.curve(options.metric)[0].size):
            skipped.append(f"left out: {describe_unfinished(run)}")
            continue
        runs.append(run)
        skipped += [f"left out: {what}" for what in describe_lost_end(run, options.metric)]
        skipped += describe_cut(run)
    if not runs:
        raise ConfigError(f"there is no run to compare: {'; '.join(skipped)}")
    return runs, skipped
