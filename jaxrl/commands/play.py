"""jaxrl play [--category=C] [--levels=DIR]: you play levels of jaxrl:Platformer.

  --levels=DIR    whose levels: train (default), test, or a folder that jaxrl
                  prepare-data has written, such as data/levels/train
  --category=C    simple (default), medium, complex, mine_heavy, exploration or
                  all
  --level=N       the first level that is played (default: 0)
  --record=FILE   appends each attempt to FILE, a line of JSON
  --speed=X       steps per second, 1 to 60 (default: 12)
  --debug         full tracebacks instead of one line for bad input

Keys: left and right run, until down stops; up jumps; r starts over, n goes to
the next level, q leaves. Reach the switch () and then the exit [], which it
opens; mines are **, and you are @@. A line of FILE has the level's digest, its
category, the actions, a digit a step, and whether they reached the exit.
"""

from __future__ import annotations

import json
import sys
import time
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

_MAX_STEPS = 2000
_HELD = 8  # steps for which one press of the jump key counts: terminals tell of no release
_NONE = 1
_LEAVE = "leave"


def main(argv: Sequence[str] | None = None) -> int:
    """Lets a person play; returns the exit code (0 left, 1 it failed, 2 bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    from envs.native.platformer.dataset import read_levels

    values = flags.FlagValues()
    flags.DEFINE_string("levels", "train", "Whose levels.", flag_values=values)
    flags.DEFINE_string("category", "simple", "Of which category.", flag_values=values)
    flags.DEFINE_integer("level", 0, "The first one.", 0, flag_values=values)
    flags.DEFINE_string("record", "", "Appends attempts.", flag_values=values)
    flags.DEFINE_float("speed", 12.0, "Steps per second.", 1.0, 60.0, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    command_line.parse_flags(values, argv)
    chosen: dict[str, Any] = {name: values[name].value for name in ("levels", "category", "level", "record")}
    try:
        levels = read_levels("`jaxrl play`: ", chosen["levels"], chosen["category"])
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if chosen["level"] >= len(levels):
        raise ConfigError(
            f"`--level` (={chosen['level']}) must be less than {len(levels)}, the number of levels"
        )
    record = Path(chosen["record"]) if chosen["record"] else None
    if record is not None:
        _append(record, "")  # before anything is played
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RunError("`jaxrl play` needs a terminal to draw on and to read keys from")
    try:
        import curses
    except ImportError as error:
        raise RunError(f"`jaxrl play` needs Python's curses: {error}") from error
    try:
        return int(
            curses.wrapper(_play, levels, chosen["level"], record, 1 / float(values["speed"].value or 1))
        )
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


def _play(
    screen: Any, levels: Sequence[PlatformerLevel], index: int, record: Path | None, seconds: float
) -> int:
    import curses

    from envs.native.platformer.attempt import Attempt

    curses.curs_set(0)
    screen.nodelay(True)
    while True:
        attempt = Attempt(levels[index % len(levels)], _MAX_STEPS)
        wish = _one_attempt(screen, attempt, f"level {index % len(levels)}", seconds)
        if record is not None and attempt.actions:
            _append(record, record_of(attempt))
        if wish == _LEAVE:
            return 0
        index += wish == "next"


def record_of(attempt: Attempt) -> str:
    """The line of JSON of an attempt."""
    level = attempt.level
    found = {"digest": level.digest, "category": level.category, "actions": attempt.actions}
    return json.dumps(found | {"success": attempt.success}) + "\n"


def _one_attempt(screen: Any, attempt: Attempt, title: str, seconds: float) -> str:
    """Plays until a key asks for something else: "again", "next" or "leave"."""
    move, held, due = _NONE, 0, time.monotonic()
    while True:
        for key in _keys(screen):
            if wish := _WISHES.get(key):
                return wish
            move, held = pressed(key, move, held)
        if not attempt.over:
            attempt.step(move + 3 * (held > 0))
            held = max(held - 1, 0)
        _draw(screen, attempt, title)
        due += seconds
        time.sleep(max(0.0, due - time.monotonic()))


_WISHES = {"q": _LEAVE, "r": "again", "n": "next"}


def pressed(key: str, move: int, held: int) -> tuple[int, int]:
    """What a key makes of the move (0 left, 1 none, 2 right) and of the steps that the jump is still held."""
    if key in ("left", "right", "down"):
        return {"left": 0, "down": _NONE, "right": 2}[key], held
    return move, _HELD if key in ("up", " ") else held


def _keys(screen: Any) -> list[str]:
    """Names of the keys that were pressed since the last call."""
    import curses

    arrows = {
        curses.KEY_LEFT: "left",
        curses.KEY_RIGHT: "right",
        curses.KEY_UP: "up",
        curses.KEY_DOWN: "down",
    }
    found = []
    while (code := screen.getch()) != -1:
        found.append(arrows.get(code) or (chr(code) if 0 < code < 128 else ""))
    return found


def _draw(screen: Any, attempt: Attempt, title: str) -> None:
    import curses

    end = ("solved" if attempt.success else "failed") + ": r again, n next, q leave"
    steps = f"{len(attempt.actions)} steps (optimal: {attempt.level.optimal_steps or '?'})"
    text = [f"{title}, {attempt.level.category}: {steps}", *attempt.picture(), end if attempt.over else ""]
    height, width = screen.getmaxyx()
    screen.erase()
    for row, line in enumerate(text[:height]):
        try:
            screen.addstr(row, 0, line[: width - 1])
        except curses.error:
            return  # the terminal has become smaller
    screen.refresh()
