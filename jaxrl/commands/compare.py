"""jaxrl compare RUN [RUN...]: compares runs: statistics, plots, a report.

  RUN...           run folders, folders that hold some, or patterns; local or
                   gs://
  --output=DIR     where the report goes: report.html, report.md, report.pdf,
                   compare.json (default: nowhere)
  --metric=KEY     the return to compare by (default: eval/return; another is
                   episode/return)
  --threshold=R    the return whose first reaching measures sample efficiency
                   (default: nine tenths of the way from the lowest return at
                   the start to the highest final one)
  --baseline=NAME  the variant that others are measured against (default: the
                   first)
  --pool           average over environments, each scaled to [0, 1]; all
                   variants must have all of them
  --force          compare also what is not comparable; the report says why it
                   is not
  --resamples=N    of the bootstrap (default: 2000)
  --debug          full tracebacks instead of one line for bad input

Runs whose configurations differ in nothing but the seed are one variant. A run
that crashed, that is, one that is not finished or cannot be read, is left out
with a warning. Runs in different environments, with different budgets, or of
the same seed twice are refused. Writing needs the `compare` extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.metrics.files import is_remote
from jaxrl.runs import storage

if TYPE_CHECKING:
    from jaxrl.experiments.comparison.results import Comparison

_MOST_RESAMPLES = 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("output", None, "Folder of the report.", flag_values=values)
    flags.DEFINE_string("metric", "eval/return", "The return.", flag_values=values)
    flags.DEFINE_float("threshold", None, "The return to reach.", flag_values=values)
    flags.DEFINE_string("baseline", None, "The variant to measure against.", flag_values=values)
    flags.DEFINE_bool("pool", False, "Average over environments.", flag_values=values)
    flags.DEFINE_bool("force", False, "Compare what is not comparable.", flag_values=values)
    flags.DEFINE_integer("resamples", 2000, "Of the bootstrap.", 100, _MOST_RESAMPLES, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    paths = command_line.parse_flags(values, argv, positional=True)
    if not paths:
        raise ConfigError("no run is named: jaxrl compare RUN [RUN...] --output=DIR")
    for path in paths:
        storage.require_reachable("RUN", path)
    output = values["output"].value
    if output and not is_remote(output):
        command_line.require_writable_folder("output", output)

    from jaxrl.experiments.comparison import Options, compare_folders

    names = ("metric", "threshold", "baseline", "pool", "resamples")
    chosen: dict[str, Any] = {name: values[name].value for name in names}
    comparison = compare_folders(paths, Options(**chosen), bool(values["force"].value))
    _show(comparison)
    if output:
        from jaxrl.experiments.comparison import report

        files = report.write(comparison, output)
        print(f"written to {files[0]}, beside it report.md, report.pdf and compare.json")
    return 0


def _show(comparison: Comparison) -> None:
    from jaxrl.experiments.comparison import tables
    from jaxrl.metrics.display import table

    console = table.open_console()
    console.print(tables.introduction(comparison), markup=False)
    for warning in (*comparison.skipped, *comparison.problems):
        console.print(f"warning: {warning}", style="yellow", markup=False)
    for found in (tables.returns(comparison), tables.costs(comparison)):
        console.print()
        table.show(found.headings, found.rows, names=found.names, title=found.title)
