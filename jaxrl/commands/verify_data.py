"""jaxrl verify-data --data=DIR: checks every level of a folder of levels.

Reads each level, compares it with the manifest and plays its solution. Exit
code 0: all are as written; 1: the first fault, with its file: a category or a
level is missing, a file is no level, a digest or another entry of the manifest
has changed, a level cannot be solved, or occurs twice; 2: bad input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxrl.commands import command_line
from jaxrl.commands.arguments import DEBUG, Argument, help_text, parse
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

ARGUMENTS = (
    Argument("--data=DIR", "what jaxrl prepare-data has written", str),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Verifies what `argv` names; returns the exit code (0 intact, 1 at fault, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    from jaxrl.envs.native.platformer.generation import dataset
    from jaxrl.envs.native.platformer.level_files import DatasetError

    values, _ = parse(ARGUMENTS, argv)
    given = str(values["data"] or "")
    if not given:
        raise ConfigError("`--data` is missing: name a folder that jaxrl prepare-data has written")
    folder = Path(given)
    if not folder.is_dir():
        raise ConfigError(f"`--data` (={given!r}) is no folder")
    try:
        counts = dataset.verify_dataset(folder)
    except DatasetError as error:
        raise RunError(str(error)) from error
    for place, count in counts.items():
        print(f"{place}: {count}")
    print(f"{sum(counts.values())} levels are as written, and their solutions solve them")
    return 0
