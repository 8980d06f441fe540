"""Attempts in a terminal: moved by a person's keys or a recording, drawn by curses."""

from __future__ import annotations

import locale
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jaxrl.envs.native.platformer.game.record import Attempt
from jaxrl.envs.native.platformer.level import PlatformerLevel

MAX_STEPS = 2000  # of an attempt
_HELD = 8  # steps for which one press of the jump key counts: terminals tell of no release
_NONE = 1
_AGAIN = "again"
_NEXT = "next"
_LEAVE = "leave"
_WISHES = {"q": _LEAVE, "r": _AGAIN, "n": _NEXT}
_LETTERS = {"a": "left", "d": "right", "s": "down", "w": "up", " ": "up"}
_ESCAPE_MILLISECONDS = "25"  # curses waits a second for what may follow the escape key, and so would the game


class KeyMoves:
    """A person's actions: the first of their keys starts the clock."""

    hint = "arrow keys or a, d, w, s: begin"  # shown while there is no action

    def __init__(self) -> None:
        self._move: int | None = None
        self._held = 0

    def press(self, key: str) -> None:
        """A key was pressed: "left", "right", "up", "down", or any other."""
        if key in ("left", "down", "right"):
            self._move = {"left": 0, "down": _NONE, "right": 2}[key]
        elif key == "up":
            self._move = _NONE if self._move is None else self._move
            self._held = _HELD

    def action(self) -> int | None:
        """The action of the next step; None while there is none."""
        if self._move is None:
            return None
        jump = self._held > 0
        self._held = max(self._held - 1, 0)
        return self._move + 3 * jump


class RecordedMoves:
    """The actions of a recording."""

    hint = "the recording ends here: r again, n next, q leave"

    def __init__(self, actions: str) -> None:
        self._left = iter(actions)

    def press(self, key: str) -> None:
        pass

    def action(self) -> int | None:
        found = next(self._left, None)
        return None if found is None else int(found)


@dataclass(frozen=True)
class Round:
    """One level as it is played, until a key asks for the next."""

    level: PlatformerLevel
    title: str
    moves: Callable[[], KeyMoves | RecordedMoves]  # of each attempt


def show(
    rounds: Sequence[Round], first: int, endless: bool, seconds: float, keep: Callable[[Attempt], None]
) -> None:
    """Takes over the terminal until a key asks to leave; curses.error if it cannot show the game.

    Args:
      rounds: in their order.
      first: index of the one to begin with.
      endless: begin anew after the last; otherwise it is over then.
      seconds: between two steps.
      keep: is given each attempt with at least one step when it is over or left, by an interrupt too.
    """
    import curses

    os.environ.setdefault("ESCDELAY", _ESCAPE_MILLISECONDS)

    def play(window: Any) -> None:
        screen, index, wish = _Screen(window), first, _AGAIN
        while wish != _LEAVE and (endless or index < len(rounds)):
            now = rounds[index % len(rounds)]
            attempt = Attempt(now.level, MAX_STEPS)
            try:
                wish = _attempt(screen, attempt, now, seconds)
            finally:
                if attempt.actions:
                    keep(attempt)
            index += wish == _NEXT

    curses.wrapper(play)


def _attempt(screen: _Screen, attempt: Attempt, now: Round, seconds: float) -> str:
    """Plays until a key asks for something else; returns the wish."""
    moves = now.moves()
    due = time.monotonic()
    while True:
        for key in screen.read_keys():
            if wish := _WISHES.get(key):
                return wish
            moves.press(key)
        action = None if attempt.over else moves.action()
        if action is not None:
            attempt.step(action)
        screen.draw(attempt, now.title, "" if action is not None else moves.hint)
        # Missed steps, such as while the process was suspended, are not made up.
        due = max(due + seconds, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def window_of(lines: Sequence[str], size: tuple[int, int], player: tuple[int, int]) -> list[str]:
    """The part of a picture that fits into `size` (rows, columns), around the player."""
    rows, columns = (max(x, 0) for x in size)
    top, left = (
        min(max(at - room // 2, 0), max(whole - room, 0))
        for at, room, whole in zip(player, (rows, columns), (len(lines), len(lines[0])), strict=True)
    )
    return [line[left : left + columns] for line in lines[top : top + rows]]


class _Screen:
    """Keys and pictures of a curses window."""

    def __init__(self, window: Any):
        import curses

        self._window = window
        self._names = {getattr(curses, f"KEY_{x.upper()}"): x for x in ("left", "right", "up", "down")}
        if not curses.tigetstr("cup"):
            raise curses.error("it cannot move its cursor")
        try:
            "█".encode(locale.getencoding())
            self._has_blocks = True
        except UnicodeEncodeError:
            self._has_blocks = False
        with suppress(curses.error):  # not every terminal can hide its cursor
            curses.curs_set(0)
        window.nodelay(True)

    def read_keys(self) -> Iterator[str]:
        """Names of the keys that were pressed; keys that were not read stay for the next call."""
        while (code := self._window.getch()) != -1:
            letter = chr(code).lower() if 0 < code < 128 else ""
            yield self._names.get(code) or _LETTERS.get(letter, letter)

    def draw(self, attempt: Attempt, title: str, hint: str) -> None:
        """Shows a line of text, as much of the level as fits around the player, and another line of text."""
        import curses

        level = attempt.level
        height, width = self._window.getmaxyx()
        steps = f"{len(attempt.actions)} steps (optimal: {level.optimal_steps or '?'})"
        last = f"{attempt.outcome}: r again, n next, q leave" if attempt.over else hint
        picture = window_of(attempt.picture(), (height - 2, width - 1), attempt.place)
        self._window.erase()
        for row, line in enumerate([f"{title}, {level.category}: {steps}", *picture, last]):
            shown = line[: width - 1] if self._has_blocks else line[: width - 1].replace("█", "#")
            with suppress(curses.error):  # the terminal has become smaller
                self._window.addstr(row, 0, shown)
        self._window.refresh()
