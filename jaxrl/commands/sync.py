"""jaxrl sync SOURCE DESTINATION: copies run folders between disks and buckets.

  SOURCE, DESTINATION   folders: local, gs://bucket/folder or s3://bucket/folder
  --dry-run             say what would be copied, and copy nothing
  --debug               full tracebacks instead of one line for what goes wrong

Files whose size and time are those of the last copy are left out. What was
copied is listed in DESTINATION/manifest.json: path, size, SHA-256 and time of
each file. Nothing is deleted. A run may be training in SOURCE. Exit code 1:
something could not be copied (the same command continues); 2: bad input.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.metrics import text
from jaxrl.runs.storage.copy import sync


def main(argv: Sequence[str] | None = None) -> int:
    """Copies what `argv` asks for; returns the exit code (1: not all, 2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_bool("dry-run", False, "Copy nothing.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    folders = command_line.parse_flags(values, argv, known_only=True)
    for argument in folders:
        if argument.startswith("-"):
            raise ConfigError(f"unknown flag `{argument}`; valid: --dry-run, --debug")
    if len(folders) != 2:
        raise ConfigError(f"two folders are needed, SOURCE and DESTINATION; {len(folders)} were given")
    dry_run = bool(values["dry-run"].value)
    report = sync(folders[0], folders[1], dry_run)
    done = "would be copied" if dry_run else "copied"
    counts = (
        f"{len(report.copied)} files ({text.size(report.size)}) {done}, {len(report.unchanged)} unchanged"
    )
    print(counts + (f", {len(report.vanished)} vanished meanwhile" if report.vanished else ""))
    return 0
