"""jaxrl compare RUN [RUN...]: compares runs: statistics, plots, a report.

Runs whose configurations differ in nothing but the seed are one variant. A run
that crashed, that is, one that is not finished or cannot be read, is left out
with a warning. Runs in different environments, with different budgets, or of
the same seed twice are refused. Writing needs the `compare` extra.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote
from jaxrl.runs import storage

if TYPE_CHECKING:
    from jaxrl.comparison.results import Comparison

_MOST_RESAMPLES = 1_000_000


class _Flags(CommandArguments):
    run = Argument("RUN...", "run folders, folders that hold some, or patterns; local or gs://")
    sequential: str | None = flag(
        "--sequential=RUN", "a pair instead of RUN...: the run with one thread, the baseline,"
    )
    parallel: str | None = flag(
        "--parallel=RUN", "and the run with several; checks that they make the same updates"
    )
    output: str | None = flag(
        "--output=DIR",
        "folder of the report: report.html, report.md, report.pdf, compare.json (default: none); "
        "FILE.png: the learning curves alone",
    )
    metric: str = flag(
        "--metric=KEY",
        "the return to compare by (default: {default}; another is episode/return)",
        "eval/return",
    )
    threshold: float | None = flag(
        "--threshold=R",
        "the return whose first reaching measures sample efficiency (default: nine tenths of the way from"
        " the lowest return at the start to the highest final one)",
    )
    baseline: str | None = flag(
        "--baseline=NAME", "the variant that others are measured against (default: the first)"
    )
    pool: bool = flag(
        "--pool", "average over environments, each scaled to [0, 1]; all variants must have all of them"
    )
    force: bool = flag("--force", "compare incomparable runs too; the report gives the reasons")
    resamples: int = flag(
        "--resamples=N", "of the bootstrap (default: {default})", 2000, within=(100, _MOST_RESAMPLES)
    )


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, paths: Sequence[str]) -> int:
    pair = _pair(flags, paths)
    if not (pair or paths):
        raise ConfigError("no run is named: jaxrl compare RUN [RUN...] --output=DIR")
    for path in pair or paths:
        storage.require_reachable("RUN", path)
    output = flags.output
    picture = output if (output or "").endswith(".png") else None
    if output and not is_remote(output):
        command_line.require_writable_folder("output", os.path.dirname(output) or "." if picture else output)

    from jaxrl.comparison import Options, compare_folders, compare_pair

    options = Options(flags.metric, flags.threshold, flags.baseline, flags.pool, flags.resamples)
    compared = functools.partial(compare_pair, *pair) if pair else functools.partial(compare_folders, paths)
    comparison = compared(options, flags.force)
    _show(comparison)
    if not output:
        return 0
    from jaxrl.comparison import comparison_report

    if picture:
        command_line.say(f"written to {comparison_report.write_curves(comparison, picture)}")
    else:
        files = comparison_report.write(comparison, output)
        command_line.say(f"written to {files[0]}, beside it report.md, report.pdf and compare.json")
    return 0


def _pair(flags: _Flags, paths: Sequence[str]) -> tuple[str, str] | None:
    sequential, parallel = flags.sequential, flags.parallel
    if not (sequential or parallel):
        return None
    if not (sequential and parallel) or paths or flags.pool or flags.baseline:
        raise ConfigError(
            "`--sequential` and `--parallel` name a run each, without others, --pool and --baseline"
        )
    return sequential, parallel


def _show(comparison: Comparison) -> None:
    from jaxrl.comparison import tables
    from jaxrl.config import text
    from jaxrl.reporting.display import table

    console = table.open_console()
    console.print(text.printable(tables.introduction(comparison), console.encoding), markup=False)
    for warning in (*comparison.skipped, *comparison.problems):
        console.print(f"warning: {text.one_line(warning)}", style="yellow", markup=False)
    for found in (tables.returns(comparison), tables.costs(comparison)):
        console.print()
        table.show(found.headings, found.rows, names=found.names, title=found.title)
