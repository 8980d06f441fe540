"""Attempts at levels outside of JAX, and their records: a line of JSON each."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs.bounded_files import parse_json, read_bytes
from jaxrl.envs.native.platformer.level import EXIT, SOLID, START, SWITCH, PlatformerLevel
from jaxrl.envs.native.platformer.physics import NUM_ACTIONS, SIZE, TILE
from jaxrl.envs.native.platformer.solver import Contacts

# A tile is two letters wide, since letters of a terminal are twice as high as wide.
_TILES = {SOLID: "██", START: "  ", ".": "  ", "x": "**", SWITCH: "()", EXIT: "[]"}
_OPEN = "<>"
_PRESSED = "  "
_PLAYER = "@@"
# The fields of `AttemptRecord`, as JSON has them.
_KINDS = {"digest": str, "category": str, "actions": str, "success": bool}
_DIGITS = frozenset("0123456789"[:NUM_ACTIONS])


class Attempt:
    """Plays a level by the rules of `jaxrl:Platformer`."""

    def __init__(self, level: PlatformerLevel, max_steps: int):
        self.level = level
        self.actions = ""  # so far, as in `PlatformerLevel.solution`
        self.over = False
        self.success = False  # over at the exit
        self.outcome = ""  # how it has ended, in words
        self._contacts = Contacts(level)
        self._max_steps = max_steps
        self._on: Any = np.bool_(False)
        self._body = self._contacts.start

    def step(self, action: int) -> None:
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


class RecordError(ValueError):
    """A file of records is not one. The message is one line that names the line at fault."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt."""

    digest: str  # of the level, as the category
    category: str
    actions: str  # a digit for the action of each step
    success: bool  # they reached the exit

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRecord:
        return cls(attempt.level.digest, attempt.level.category, attempt.actions, attempt.success)

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"


def read_records(file: Path) -> tuple[AttemptRecord, ...]:
    """The attempts of a file, in the order in which they were played; RecordError if a line is none.

    Or if there is none; OSError if the file cannot be read.
    """
    try:
        lines = read_bytes(file).decode().splitlines()
    except UnicodeDecodeError as error:
        raise RecordError("is no text") from error
    if not lines:
        raise RecordError("has no attempt")
    return tuple(_record(number, line) for number, line in enumerate(lines, 1))


def _record(number: int, line: str) -> AttemptRecord:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise RecordError(f"line {number} is no JSON") from error
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in _KINDS.items()):
        raise RecordError(f"line {number} needs {', '.join(_KINDS)}")
    if not found["actions"] or not _DIGITS.issuperset(found["actions"]):
        raise RecordError(f"line {number}: actions must be digits from 0 to {NUM_ACTIONS - 1}, at least one")
    return AttemptRecord(**{name: found[name] for name in _KINDS})
