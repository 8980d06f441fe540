"""Readers of what runs write into their folders, local or gs://, also while they train."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError, flatten
from jaxrl.metrics.writers.jsonl import is_number
from jaxrl.runs import storage

Row = dict[str, Any]

# Where a population keeps the run folders of its members.
MEMBERS = "members"
# How many levels below a named folder to look for runs.
_DEPTH = 4
_WILDCARDS = "*?["


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
      path: where.
      config: config.json, fields by dotted name.
      rows: of metrics.jsonl.
      summary: summary.json; None until the run is done.
    """

    path: str
    config: Mapping[str, Any]
    rows: Sequence[Row]
    summary: Mapping[str, Any] | None

    def curve(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric, both float64 and sorted by step; empty where it was never finite."""
        points = sorted((row["step"], row[key]) for row in self.rows if row.get(key) is not None)
        steps, values = np.array(points, np.float64).reshape(-1, 2).T
        return steps, values

    def seconds_at(self, step: float) -> float | None:
        """Seconds of training at the first row from `step` on; None where no row tells."""
        found = (r["time/seconds"] for r in self.rows if r["step"] >= step and r.get("time/seconds"))
        return next(found, None)


def find(names: Sequence[str], flag: str = "RUN") -> list[str]:
    """Run folders: those named, those inside named folders, and those that match a pattern.

    Args:
      names: folders, or patterns with `*`, `?` and `[...]`; local or gs://.
      flag: the argument's name, for the error.

    Raises:
      ConfigError: a name leads to no run.
    """
    found: dict[str, None] = {}
    for name in names:
        storage.prepare(name)
        try:
            with storage.as_os_errors():
                runs = [str(run) for place in _expand(name) for run in runs_below(place)]
        except OSError as error:
            raise ConfigError(f"`{flag}` (={name!r}) cannot be read: {error}") from error
        if not runs:
            raise ConfigError(
                f"`{flag}` (={name!r}) is no run folder and holds none: there is no config.json"
            )
        found.update(dict.fromkeys(runs))
    return list(found)


def require_place(name: str, flag: str = "DIR") -> None:
    """Raises ConfigError unless `name` is a folder, or a pattern in one that exists; runs may come later."""
    storage.prepare(name)
    try:
        with storage.as_os_errors():
            there = bool(set(name) & set(_WILDCARDS)) or epath.Path(os.path.expanduser(name)).is_dir()
    except OSError as error:
        raise ConfigError(f"`{flag}` (={name!r}) cannot be read: {error}") from error
    if not there:
        raise ConfigError(f"`{flag}` (={name!r}) is no folder")


def runs_below(folder: epath.Path, depth: int = _DEPTH) -> Iterator[epath.Path]:
    """The folder itself if it is a run's, else the runs in it, by name; of a population its members."""
    if (folder / MEMBERS).is_dir():
        yield from runs_below(folder / MEMBERS, depth)
    elif (folder / "config.json").exists():
        yield folder
    elif depth and folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if not inner.name.startswith(".") and inner.is_dir():
                yield from runs_below(inner, depth - 1)


def read(path: str) -> Run:
    """Reads a run.

    Raises:
      ConfigError: a file is missing or damaged.
    """
    storage.prepare(path)
    folder = epath.Path(path)
    try:
        with storage.as_os_errors():
            rows = MetricsTail(folder).poll()[1]
            config = read_json(folder / "config.json")
            summary = read_json(folder / "summary.json") if (folder / "summary.json").exists() else None
    except OSError as error:
        raise ConfigError(f"the run {path} cannot be read: {error}") from error
    if not rows:
        raise ConfigError(f"the run {path} has no metrics: metrics.jsonl is missing or empty")
    return Run(path, flatten(config), rows, summary)


def read_json(file: epath.Path) -> dict[str, Any]:
    """Raises ConfigError where the file does not hold a JSON object, OSError where it cannot be read."""
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is damaged: it must hold a JSON object")
    return content


def step_budget(config: Mapping[str, Any]) -> int:
    """The budget in environment steps, in whole iterations; 0 where the configuration names none."""
    whole = config.get("derived.num_iterations", 0) * config.get("derived.steps_per_iteration", 0)
    return int(whole or config.get("stop.steps") or 0)


class MetricsTail:
    """Reads metrics.jsonl as it grows; a run that restarts or resumes replaces rows."""

    def __init__(self, folder: epath.Path) -> None:
        self._file = folder / "metrics.jsonl"
        self._offset = 0
        self._last = b""  # the line before the offset; if it changes, the file was replaced

    def poll(self) -> tuple[bool, list[Row]]:
        """(whether the rows replace all earlier ones, new rows); torn and damaged lines are left out.

        Raises:
          OSError: the file exists and cannot be read.
        """
        replaced = False
        data = self._read(self._offset - len(self._last))
        if not data.startswith(self._last):
            replaced, self._offset, self._last = True, 0, b""
            data = self._read(0)
        whole = data[len(self._last) : data.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        if lines:
            self._offset, self._last = self._offset + len(whole), lines[-1]
        return replaced, [row for line in lines if (row := _row(line)) is not None]

    def _read(self, offset: int) -> bytes:
        try:
            with self._file.open("rb") as stream:
                stream.seek(offset)
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return b""


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not is_number(row.get("step")):
        return None
    return {name: x for name, x in row.items() if x is None or is_number(x)}


def _expand(name: str) -> list[epath.Path]:
    """The folders that a name or a pattern stands for."""
    storage.prepare(name)
    parts = epath.Path(os.path.expanduser(name)).parts
    first = next((i for i, part in enumerate(parts) if set(part) & set(_WILDCARDS)), None)
    if first is None or epath.Path(os.path.expanduser(name)).exists():
        return [epath.Path(os.path.expanduser(name))]
    return sorted(epath.Path(*parts[:first]).glob("/".join(parts[first:])))
