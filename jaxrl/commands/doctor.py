"""jaxrl doctor: checks whether the machine is ready to train.

Looks at Python, package versions, flags, driver, memory, disk and devices, and
trains for some seconds. Exit code 0: all is well, or only worth a warning; 1:
something is broken, with advice; 2: bad input.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import JSON, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote
from jaxrl.diagnostics import machine_health

_STYLES = {machine_health.OK: "green", machine_health.WARNING: "yellow", machine_health.BROKEN: "bold red"}


class _Flags(CommandArguments):
    workdir: str = flag("--workdir=DIR", "where runs will go, for the room on its disk (default: here)", ".")
    bucket: str | None = flag("--bucket=gs://BUCKET", "also writes, reads and deletes an object there")
    as_json: bool = JSON


@command_line.command(__doc__, _Flags)
def main(flags: _Flags, _: Sequence[str]) -> int:
    if is_remote(flags.workdir):
        raise ConfigError(f"`--workdir` (={flags.workdir}) must be a local folder; --bucket tries buckets")
    if flags.bucket and not flags.bucket.startswith("gs://"):
        raise ConfigError(f"`--bucket` (={flags.bucket}) must start with gs://")
    findings = []
    for finding in machine_health.examine(flags.workdir, flags.bucket):
        findings.append(finding)
        if not flags.as_json:
            _show(finding)
    broken = sum(finding.status == machine_health.BROKEN for finding in findings)
    warnings = sum(finding.status == machine_health.WARNING for finding in findings)
    if flags.as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps({"ok": broken == 0, "findings": rows}, indent=2))
    else:
        print(f"\n{broken} broken, {warnings} to look at" if broken or warnings else "\nready to train")
    return 1 if broken else 0


def _show(finding: machine_health.HealthFinding) -> None:
    from rich.table import Table
    from rich.text import Text

    from jaxrl.reporting.display import table

    style = _STYLES[finding.status]
    advice = f"\n-> {finding.advice}" if finding.advice else ""
    line = Table.grid(padding=(0, 1, 0, 0))
    for width in (7, 10, None):
        line.add_column(width=width)
    line.add_row(Text(finding.status, style), finding.check, Text(f"{finding.found}{advice}"))
    table.open_console().print(line)
