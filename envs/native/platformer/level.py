"""A level: a picture of letters, checked and turned into arrays. Never pickled."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import warnings
import zipfile
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.envs.bounded_files import parse_json

ROWS, COLUMNS = 16, 24  # of the largest level
CATEGORIES = ("simple", "medium", "complex", "mine_heavy", "exploration")
SOLID, EMPTY, MINE, START, SWITCH, EXIT = "#.xSKE"
LARGEST_LEVEL = 1_000_000  # bytes of its file, and of all arrays; a level has some hundreds of letters
MINE_PART = (2, 6)  # of a tile, in units; the rest of a mine's tile is safe


class LevelError(ValueError):
    """A level is not one. The message is one line."""


@dataclasses.dataclass(frozen=True)
class PlatformerLevel:
    """One level: `#` is solid, `.` empty, `x` a mine, `S` the start, `K` the switch, `E` the exit."""

    rows: tuple[str, ...]  # of letters
    category: str  # one of `CATEGORIES`
    seed: int  # it was generated from
    solution: str = ""  # one of the shortest, a digit 0 to 5 for each step; "" if none is known

    def __post_init__(self) -> None:
        if self.category not in CATEGORIES:
            raise LevelError(f"category (={self.category!r:.80}) must be one of {', '.join(CATEGORIES)}")
        widths = {len(row) for row in self.rows}
        if not 3 <= len(self.rows) <= ROWS or len(widths) != 1 or not 3 <= min(widths) <= COLUMNS:
            raise LevelError(f"rows must be 3 to {ROWS} strings of one length, 3 to {COLUMNS}")
        text = "".join(self.rows)
        for letter in sorted(set(text) - {SOLID, EMPTY, MINE, START, SWITCH, EXIT}):
            raise LevelError(f"rows hold {letter!r}; letters are {SOLID}{EMPTY}{MINE}{START}{SWITCH}{EXIT}")
        for letter in (START, SWITCH, EXIT):
            if text.count(letter) != 1:
                raise LevelError(f"rows must hold {letter!r} once, not {text.count(letter)} times")
        border = self.rows[0] + self.rows[-1] + "".join(row[0] + row[-1] for row in self.rows)
        if set(border) != {SOLID}:
            raise LevelError(f"the border of a level must be solid ({SOLID!r})")
        if not isinstance(self.solution, str) or set(self.solution) - set("012345"):
            raise LevelError("solution must be a string of the digits 0 to 5")

    @property
    def digest(self) -> str:
        """SHA-256 of the rows: levels that look the same have the same."""
        return hashlib.sha256("\n".join(self.rows).encode()).hexdigest()

    @property
    def optimal_steps(self) -> int:
        return len(self.solution)

    def place_of(self, letter: str) -> tuple[int, int]:
        """(column, row) of the start, the switch or the exit."""
        row = next(i for i, line in enumerate(self.rows) if letter in line)
        return self.rows[row].index(letter), row

    def tiles_of(self, letter: str) -> np.ndarray:
        """bool[ROWS, COLUMNS]: where that letter is; beyond the level everything is solid."""
        found = np.full((ROWS, COLUMNS), letter == SOLID)
        for i, line in enumerate(self.rows):
            found[i, : len(line)] = np.array(list(line)) == letter
        return found

    def distances_to(self, letter: str) -> np.ndarray:
        """int32[ROWS, COLUMNS]: tiles to walk to the switch or the exit, if there were no gravity or mines.

        In solid tiles it is the largest number of tiles.
        """
        column, row = self.place_of(letter)
        closed = self.tiles_of(SOLID)
        found = np.full((ROWS, COLUMNS), ROWS * COLUMNS, np.int32)
        found[row, column] = 0
        waiting = deque([(row, column)])
        while waiting:
            r, c = waiting.popleft()
            for i, j in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if not closed[i, j] and found[i, j] > found[r, c] + 1:
                    found[i, j] = found[r, c] + 1
                    waiting.append((i, j))
        return found

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=0) + "\n"


def from_json(text: str | bytes) -> PlatformerLevel:
    """Reads `to_json`; LevelError, one line, if it is not of a level."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise LevelError(f"is not JSON: {' '.join(str(error).split()):.200}") from error
    return _from_fields(data)


def from_npz(content: bytes) -> PlatformerLevel:
    """Reads arrays of the names and values of `to_json`: text and integers; LevelError likewise."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of numpy, on headers that it has not written
            data = _read_arrays(content)
    except LevelError:
        raise
    except Exception as error:  # numpy and zipfile raise almost anything for a flipped bit
        reason = " ".join(str(error).split())
        raise LevelError(f"is not .npz with arrays of text and numbers: {reason:.200}") from error
    return _from_fields(data)


def _read_arrays(content: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(part.file_size for part in archive.infolist()) > LARGEST_LEVEL:
            raise LevelError(f"holds more than {LARGEST_LEVEL:,} bytes")
    data = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        for name in arrays.files:
            array = arrays[name]
            # Elements of no bytes take no room in the file.
            if not isinstance(array, np.ndarray) or array.size > LARGEST_LEVEL:
                raise LevelError(f"{name!r} is no array of text or numbers")
            data[name] = array.tolist()
    return data


def _from_fields(data: Any) -> PlatformerLevel:
    names = {field.name for field in dataclasses.fields(PlatformerLevel)}
    if not isinstance(data, dict) or set(data) != names:
        raise LevelError(f"must be an object with {', '.join(sorted(names))}")
    rows = data["rows"]
    seed = data["seed"]
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise LevelError("rows must be a list of strings")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise LevelError(f"seed (={seed!r:.80}) must be an integer")
    return PlatformerLevel(tuple(rows), data["category"], seed, data["solution"])


@dataclasses.dataclass(frozen=True)
class LevelTables:
    """N levels as arrays."""

    solid: np.ndarray  # int32[N * ROWS], bit c of a row's word for column c; as mines
    mines: np.ndarray
    start: np.ndarray  # int32[N, 2], (column, row); as switch and exit
    switch: np.ndarray
    exit: np.ndarray
    to_switch: np.ndarray  # int32[N, ROWS, COLUMNS], see `PlatformerLevel.distances_to`; as to_exit
    to_exit: np.ndarray
    optimal_steps: np.ndarray  # int32[N]

    @classmethod
    def of(cls, levels: Sequence[PlatformerLevel]) -> LevelTables:
        bits = 1 << np.arange(COLUMNS, dtype=np.int32)

        def words(letter: str) -> np.ndarray:
            return np.concatenate([level.tiles_of(letter) @ bits for level in levels]).astype(np.int32)

        def places(letter: str) -> np.ndarray:
            return np.array([level.place_of(letter) for level in levels], np.int32)

        return cls(
            solid=words(SOLID),
            mines=words(MINE),
            start=places(START),
            switch=places(SWITCH),
            exit=places(EXIT),
            to_switch=np.stack([level.distances_to(SWITCH) for level in levels]),
            to_exit=np.stack([level.distances_to(EXIT) for level in levels]),
            optimal_steps=np.array([level.optimal_steps for level in levels], np.int32),
        )
