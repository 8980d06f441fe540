"""jaxrl profile-summary DIR: lists a device trace's top operations and phases.

Traces come from --config.profile.steps=N, or from SIGUSR1 to a run. Printed are
the split of the devices' time by phase, and the operations that take most of
it, without those inside them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import JSON, Argument, CommandArguments, flag
from jaxrl.config import ConfigError

if TYPE_CHECKING:
    from jaxrl.diagnostics.device_trace import TraceSummary


class _Flags(CommandArguments):
    dir = Argument("DIR", "a run's folder or a trace in it; of several traces the newest")
    top: int = flag("--top=N", "how many operations to list (default: {default})", 15, within=(1, 10_000))
    as_json: bool = replace(JSON, help="one JSON object instead of tables")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    if unknown := [argument for argument in left if argument.startswith("-")]:
        raise ConfigError(f"unknown flag `{unknown[0]}`")
    if len(left) != 1:
        raise ConfigError("name one folder: jaxrl profile-summary DIR")

    from jaxrl.diagnostics.device_trace import newest, read

    summary = read(newest(left[0]))
    if flags.as_json:
        print(json.dumps(dataclasses.asdict(summary), indent=2))
    else:
        _show(summary, flags.top)
    return 0


def _show(summary: TraceSummary, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from jaxrl.config.text import printable
    from jaxrl.reporting.display import table

    console = table.open_console()
    console.print(f"trace  {printable(summary.file, console.encoding)}", soft_wrap=True, markup=False)
    console.print(
        f"{1e3 * summary.seconds:,.1f} ms on {summary.threads} threads or streams, "
        f"{summary.busy:.0%} of it at work\n"
    )
    total = sum(summary.phases.values())
    rows = []
    for name, seconds in summary.phases.items():
        host = f"{1e3 * summary.host[name]:,.1f}" if summary.host.get(name) else "-"
        rows.append((name, f"{1e3 * seconds:,.2f}", f"{seconds / total:.1%}", host))
    table.show(("phase", "device ms", "share", "host ms"), rows)
    if not summary.named:
        console.print("no *.hlo.txt beside the trace: the phases of operations are unknown")
    console.print()
    operations = Table(box=None)
    # On a narrow terminal only the last two give way.
    widths = {"ms": 8, "share": 5, "times": 6, "phase": 10, "operation": 1, "from": 1}
    for heading, width in widths.items():
        right = heading in ("ms", "share", "times")
        operations.add_column(heading, justify="right" if right else "left", no_wrap=True, min_width=width)
    for operation in summary.operations[:top]:
        operations.add_row(
            f"{1e3 * operation.seconds:,.2f}",
            f"{operation.seconds / total:.1%}",
            f"{operation.count:,}",
            operation.phase,
            Text(printable(operation.name, console.encoding)),
            Text(printable(operation.source, console.encoding)),
        )
    console.print(operations)
