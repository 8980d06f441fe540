"""Comparison of runs: which belong together, what their returns say, and a report."""

from collections.abc import Sequence

from jaxrl.config import ConfigError
from jaxrl.experiments.comparison.results import Comparison, Options, compare
from jaxrl.experiments.comparison.variants import Variant, problems, unfinished, variants_of
from jaxrl.runs import records

__all__ = ["Options", "Variant", "compare", "compare_folders", "problems", "variants_of"]


def compare_folders(paths: Sequence[str], options: Options, force: bool = False) -> Comparison:
    """Compares the runs in some folders; runs that crashed are left out.

    Args:
      paths: run folders, folders of them, or patterns.
      options: what to compare by.
      force: compare also what is not comparable, and runs that are not finished.

    Raises:
      ConfigError: there are no such runs, they lack what is asked for, or they do not compare.
    """
    runs, skipped = [], []
    for path in records.find(paths):
        try:
            run = records.read(path)
        except ConfigError as error:
            skipped.append(f"left out: {error}")
            continue
        # Unfinished, a run can be compared by force, unless it ended before it was measured at all.
        if run.summary is None and not (force and run.curve(options.metric)[0].size):
            skipped.append(f"left out: {unfinished(run)}")
            continue
        runs.append(run)
    if not runs:
        raise ConfigError(f"there is no run to compare: {'; '.join(skipped)}")
    variants = variants_of(runs, options.pool)
    found = problems(variants, options.pool)
    if found and not force:
        raise ConfigError(f"the runs are not comparable: {'; '.join(found)} (--force compares all the same)")
    return compare(variants, found, options, skipped)
