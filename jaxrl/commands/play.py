"""jaxrl play [--category=C] [--levels=DIR]: you play levels of jaxrl:Platformer.

  --levels=DIR    whose levels: train (default), test, or a folder that jaxrl
                  prepare-data has written, such as data/levels/train
  --category=C    simple (default), medium, complex, mine_heavy, exploration or
                  all
  --level=N       the first level that is played (default: 0)
  --record=FILE   appends each attempt to FILE, a line of JSON
  --replay=FILE   shows the attempts of such a FILE; with the same --levels
  --speed=X       steps per second, 1 to 60 (default: 12)
  --debug         full tracebacks instead of one line for bad input

Keys: left and right run, until down stops; up jumps (or a, d, s, w and space);
r starts over, n goes to the next level, q leaves. The clock starts with the
first key that moves you (or down). Reach the switch () and then the exit [],
which it opens; mines are **, and you are @@. A line of FILE has the level's
digest, its category, the actions, a digit a step, and whether they reached the
exit.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

if TYPE_CHECKING:
    from envs.native.platformer.attempt import Attempt
    from envs.native.platformer.level import PlatformerLevel
    from envs.native.platformer.terminal import Round

_LABEL = "`jaxrl play`: "


def main(argv: Sequence[str] | None = None) -> int:
    """Lets a person play; returns the exit code (0 left, 1 it failed, 2 bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("levels", "train", "Whose levels.", flag_values=values)
    flags.DEFINE_string("category", "simple", "Of which category.", flag_values=values)
    flags.DEFINE_integer("level", 0, "The first one.", 0, flag_values=values)
    flags.DEFINE_string("record", "", "Appends attempts.", flag_values=values)
    flags.DEFINE_string("replay", "", "Shows attempts.", flag_values=values)
    flags.DEFINE_float("speed", 12.0, "Steps per second.", 1.0, 60.0, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    command_line.parse_flags(values, argv)
    chosen: dict[str, Any] = {name: values[name].value for name in values}
    if chosen["record"] and chosen["replay"]:
        raise ConfigError("`--record` and `--replay` exclude each other: a recording is there already")
    rounds = _recordings(chosen) if chosen["replay"] else _levels(chosen)
    record = Path(chosen["record"]) if chosen["record"] else None
    if record is not None:
        _append(record, "")  # before anything is played
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RunError("`jaxrl play` needs a terminal to draw on and to read keys from")
    _show(rounds, chosen, record)
    return 0


def _levels(chosen: dict[str, Any]) -> list[Round]:
    """What a person plays, by the values of the flags."""
    from envs.native.platformer.terminal import KeyMoves, Round

    found = _read_levels(chosen["levels"], chosen["category"])
    if chosen["level"] >= len(found):
        raise ConfigError(
            f"`--level` (={chosen['level']}) must be less than {len(found)}, the number of levels"
        )
    return [Round(level, f"level {n}", KeyMoves) for n, level in enumerate(found)]


def _recordings(chosen: dict[str, Any]) -> list[Round]:
    """The attempts of `--replay` from number `--level`, with their levels."""
    from envs.native.platformer.record import RecordError, read_records
    from envs.native.platformer.terminal import RecordedMoves, Round

    label = f"`--replay` (={chosen['replay']!r})"
    try:
        records = read_records(Path(chosen["replay"]))
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror or error}") from error
    except RecordError as error:
        raise ConfigError(f"{label} {error}") from error
    if chosen["level"] >= len(records):
        raise ConfigError(
            f"`--level` (={chosen['level']}) must be less than {len(records)}, the number of attempts"
        )
    by_digest = {level.digest: level for level in _read_levels(chosen["levels"], "all")}
    for number, record in enumerate(records, 1):
        if record.digest not in by_digest:
            raise ConfigError(
                f"{label} line {number} was played in a level that `--levels` (={chosen['levels']!r}) lacks"
            )
    return [
        Round(by_digest[record.digest], f"attempt {n}", functools.partial(RecordedMoves, record.actions))
        for n, record in enumerate(records)
    ]


def _read_levels(folder: str, category: str) -> tuple[PlatformerLevel, ...]:
    from envs.native.platformer.dataset import read_levels

    try:
        return read_levels(_LABEL, folder, category)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _show(rounds: Sequence[Round], chosen: dict[str, Any], record: Path | None) -> None:
    try:
        import curses
    except ImportError as error:
        raise RunError(f"`jaxrl play` needs Python's curses: {error}") from error
    from envs.native.platformer.record import AttemptRecord
    from envs.native.platformer.terminal import show

    def keep(attempt: Attempt) -> None:
        if record is not None:
            _append(record, AttemptRecord.of(attempt).line())

    endless = not chosen["replay"]
    try:
        show(rounds, chosen["level"], endless, 1 / chosen["speed"], keep)
    except curses.error as error:
        raise RunError(f"this terminal cannot show the game: {error}") from error


def _append(file: Path, line: str) -> None:
    try:
        with file.open("a") as stream:
            stream.write(line)
    except OSError as error:
        raise ConfigError(
            f"`--record` (={str(file)!r}) cannot be written: {error.strerror or error}"
        ) from error
