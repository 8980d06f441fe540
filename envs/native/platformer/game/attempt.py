"""One attempt at a level outside of JAX: for people who play, one action after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.envs.native.platformer.generation.solver import Contacts
from jaxrl.envs.native.platformer.level import EXIT, SOLID, START, SWITCH, PlatformerLevel
from jaxrl.envs.native.platformer.physics import SIZE, TILE

# A tile is two letters wide, since letters of a terminal are twice as high as wide.
_TILES = {SOLID: "██", START: "  ", ".": "  ", "x": "**", SWITCH: "()", EXIT: "[]"}
_OPEN = "<>"
_PRESSED = "  "
_PLAYER = "@@"


class Attempt:
    """Plays a level by the rules of `jaxrl:Platformer`.

    Attributes:
      level: what is played.
      actions: the ones so far, as in `PlatformerLevel.solution`.
      over, success: whether it has ended, and whether at the exit.
      outcome: how it has ended, in words; "" before.
    """

    def __init__(self, level: PlatformerLevel, max_steps: int):
        self.level = level
        self.actions = ""
        self.over = False
        self.success = False
        self.outcome = ""
        self._contacts = Contacts(level)
        self._max_steps = max_steps
        self._on: Any = np.bool_(False)
        self._body = self._contacts.start

    def step(self, action: int) -> None:
        """Makes one step; the attempt must not be over."""
        self._body, on, mine, done = self._contacts.step(self._body, self._on, np.int32(action))
        self._on = np.bool_(on)
        self.actions += str(action)
        self.success = bool(done)
        late = len(self.actions) >= self._max_steps
        self.outcome = "solved" if done else "a mine" if mine else "time is up" if late else ""
        self.over = self.outcome != ""

    @property
    def place(self) -> tuple[int, int]:
        """Row and first column of the player in `picture`."""
        x, y = (int(part) for part in self._body[:2])
        return (y + SIZE // 2) // TILE, (x * 2 + TILE // 2) // TILE

    def picture(self) -> list[str]:
        """The level as lines of text, two letters a tile."""
        letters = [[_TILES[letter] for letter in row] for row in self.level.rows]
        if self._on:
            (column, row), (exit_column, exit_row) = (
                self.level.place_of(letter) for letter in (SWITCH, EXIT)
            )
            letters[row][column], letters[exit_row][exit_column] = _PRESSED, _OPEN
        lines = ["".join(row) for row in letters]
        row, left = self.place
        lines[row] = lines[row][:left] + _PLAYER + lines[row][left + 2 :]
        return lines
