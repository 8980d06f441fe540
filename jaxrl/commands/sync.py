"""jaxrl sync SOURCE DESTINATION: copies run folders between disks and buckets.

Files unchanged in size and time since the last copy are left out. Copied files
are listed in DESTINATION/manifest.json: path, size, SHA-256 and time of each
file. Nothing is deleted. A run may be training in SOURCE. Exit code 1:
something could not be copied (the same command continues); 2: bad input.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config import ConfigError, text
from jaxrl.runs.storage.copy import sync


class _Flags(CommandArguments):
    source_destination = Argument(
        "SOURCE, DESTINATION", "folders: local, gs://bucket/folder or s3://bucket/folder"
    )
    dry_run: bool = flag("--dry-run", "list the files to copy, and copy nothing")
    debug: bool = flag("--debug", "full tracebacks instead of one line for what goes wrong")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, folders: Sequence[str]) -> int:
    for argument in folders:
        if argument.startswith("-"):
            raise ConfigError(f"unknown flag `{argument}`; valid: --dry-run, --debug")
    named = [folder for folder in folders if folder]  # "" would be the working folder
    if len(folders) != 2 or len(named) != 2:
        raise ConfigError(f"two folders are needed, SOURCE and DESTINATION; {len(named)} were given")
    report = sync(folders[0], folders[1], flags.dry_run)
    done = "would be copied" if flags.dry_run else "copied"
    files = f"{text.counted(len(report.copied), 'file')} ({text.size(report.size)}) {done}"
    vanished = f", {len(report.vanished)} vanished meanwhile" if report.vanished else ""
    print(f"{files}, {len(report.unchanged)} unchanged{vanished}")
    return 0
