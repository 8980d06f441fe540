"""Readers of the files in run folders, local or gs://, also while the runs train."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError, flatten
from jaxrl.config.data_files import LARGEST_LOG, is_number, parse_line, read_bytes, read_object, split_lines
from jaxrl.config.errors import errors_as
from jaxrl.config.fields import check
from jaxrl.runs import storage
from jaxrl.runs.stage_ends import StageEnds

Row = dict[str, Any]

# The folder, in a population's, of the run folders of its members.
MEMBERS = "members"
_LEVELS = "test_levels.yaml"  # of an experiment
# Levels below a named folder in which to look for runs.
_DEPTH = 4
_WILDCARDS = "*?["
_LARGEST_LOCK = 4096  # bytes
# What readers compute with; the rest of a file is only shown.
_CONFIG: dict[str, Any] = {
    "seed": int | None,
    "env.name": str | None,
    "env.wrappers": tuple[str, ...] | None,
    "stop.steps": int | None,
    "stop.seconds": float | None,
    "derived.num_iterations": int | None,
    "derived.steps_per_iteration": int | None,
}
_SUMMARY: dict[str, Any] = {
    "steps": int | None,
    "steps_per_second": float | None,
    "device": str | None,
    "best_member": str | None,
    "peak_memory_bytes": None,  # a part of the file, with values of its own
    "peak_memory_bytes.host": float | None,
    "peak_memory_bytes.device": float | None,
}


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
      config: config.json, fields by dotted name.
      rows: of metrics.jsonl.
      summary: summary.json, values inside of others by dotted name; None until the run is done.
    """

    path: str
    config: Mapping[str, Any]
    rows: Sequence[Row]
    summary: Mapping[str, Any] | None

    def curve(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric, both float64 and sorted by step; empty if it was never finite."""
        points = sorted((row["step"], row[key]) for row in self.rows if row.get(key) is not None)
        steps, values = np.array(points, np.float64).reshape(-1, 2).T
        return steps, values

    def seconds_at(self, step: float) -> float | None:
        """Seconds of training at the first row from `step` on; None without such a row.

        As `stop.seconds` counts them, without compilation; rows without it have the seconds since the start.
        """
        found = (_seconds(row) for row in self.rows if row["step"] >= step)
        return next((seconds for seconds in found if seconds), None)

    @property
    def stage_ends(self) -> list[float]:
        """The steps at which a stage of training, or of a curriculum, ended and another began."""
        ends = StageEnds()
        for row in sorted(self.rows, key=lambda row: row["step"]):
            ends.add(row)
        return sorted(ends.steps)

    @property
    def seconds(self) -> float | None:
        """Seconds of training in all, counted as by `seconds_at`; None if no row has them."""
        return max((seconds for row in self.rows if (seconds := _seconds(row))), default=None)


def find(names: Sequence[str], flag: str = "RUN") -> list[str]:
    """Run folders: named ones, ones inside named folders, and ones that match a pattern.

    Args:
      names: folders, or patterns with `*`, `?` and `[...]`; local or gs://.
      flag: the argument's name, for the error.

    Raises:
      ConfigError: a name leads to no run.
    """
    found: dict[str, None] = {}
    for name in names:
        storage.prepare(name)
        with errors_as(ConfigError, f"`{flag}` (={name!r}) cannot be read", OSError), storage.as_os_errors():
            runs = [str(run) for place in _expand(name) for run in runs_below(place)]
        if not runs:
            raise ConfigError(
                f"`{flag}` (={name!r}) is no run folder and holds none: there is no config.json of a run"
            )
        found.update(dict.fromkeys(runs))
    return list(found)


def require_place(name: str, flag: str = "DIR") -> None:
    """Raises ConfigError unless `name` is a folder, or a pattern in one that exists; runs may come later."""
    storage.prepare(name)
    with errors_as(ConfigError, f"`{flag}` (={name!r}) cannot be read", OSError), storage.as_os_errors():
        there = bool(set(name) & set(_WILDCARDS)) or epath.Path(os.path.expanduser(name)).is_dir()
    if not there:
        raise ConfigError(f"`{flag}` (={name!r}) is no folder")


def require_no_runs(
    folder: str, flag: str = "workdir", own: Sequence[str] = ("config.json", MEMBERS), depth: int = 2
) -> None:
    """Raises ConfigError if a local folder is or holds a run: what is written there would mix with it.

    Args:
      own: the files and folders of which one says that the folder belongs to what writes there.
      depth: how many levels below the folder are searched; 0: the folder itself alone.
    """
    if storage.is_remote(folder) or any(os.path.exists(os.path.join(folder, name)) for name in own):
        return
    with contextlib.suppress(OSError):
        for run in runs_below(epath.Path(folder), depth):
            there = "is a run" if run == epath.Path(folder) else f"holds runs, such as {run}"
            raise ConfigError(f"`--{flag}` (={folder!r}) {there}: name another folder")


def runs_below(folder: epath.Path, depth: int = _DEPTH) -> Iterator[epath.Path]:
    """The folder itself if it is a run's, else the runs in it, by name; for a population its members.

    A model in a registry keeps the configuration of its run, and is none; an experiment has its options in a
    file of that name, beside its levels, and its cells are runs.
    """
    if (folder / MEMBERS).is_dir():
        yield from runs_below(folder / MEMBERS, depth)
    elif (folder / "model.json").exists():
        return
    elif (folder / "config.json").exists() and not (folder / _LEVELS).exists():
        yield folder
    elif depth and folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if not inner.name.startswith(".") and inner.is_dir():
                yield from runs_below(inner, depth - 1)


def read(path: str) -> Run:
    """Reads a run; ConfigError if a file is missing or damaged."""
    storage.prepare(path)
    folder = epath.Path(path)
    with errors_as(ConfigError, f"the run {path} cannot be read", OSError), storage.as_os_errors():
        rows = MetricsTail(folder).poll()[1]
        config = read_config(folder)
        summary = read_summary(folder)
    if not rows:
        raise ConfigError(f"the run {path} has no metrics: metrics.jsonl is missing or empty")
    return Run(path, config, rows, summary)


def read_config(folder: epath.Path) -> dict[str, Any]:
    """The fields of config.json by dotted name; raises as `read_json` does."""
    file = folder / "config.json"
    return _check_values(file, flatten(read_json(file)), _CONFIG)


def read_summary(folder: epath.Path) -> dict[str, Any] | None:
    """The content of summary.json, values inside of others by dotted name; None until the run is done.

    Raises:
      ConfigError: it is damaged.
      OSError: it cannot be read.
    """
    file = folder / "summary.json"
    return _check_values(file, flatten(read_json(file)), _SUMMARY) if file.exists() else None


def _check_values(file: epath.Path, values: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    for name in values.keys() & kinds:
        with errors_as(ConfigError, f"{file} is damaged", ConfigError):
            if kinds[name] is None:
                raise ConfigError(f"`{name}` must be an object")
            check(name, values[name], kinds[name])
    return values


def is_saved_state(folder: epath.Path) -> bool:
    """True of the output of `Trainer.save`: a state to continue from, without a run's progress."""
    progress = ("metrics.jsonl", "train.log", "summary.json")
    return (folder / "checkpoints").is_dir() and not any((folder / name).exists() for name in progress)


def checkpoint_steps(folder: epath.Path) -> list[int]:
    """The steps of a run's checkpoints by the names of their folders, in order; none are opened."""
    place = folder / "checkpoints"
    names = [found.name for found in place.iterdir()] if place.is_dir() else []
    return sorted(int(name) for name in names if re.fullmatch(r"[0-9]{1,15}", name))


def read_json(file: epath.Path) -> dict[str, Any]:
    """The JSON object in a file; raises ConfigError if there is none, OSError if it cannot be read."""
    with errors_as(ConfigError, f"{file} is damaged", ValueError):
        return read_object(file)


def stored_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file, local or gs://; empty if there is none that can be read."""
    with contextlib.suppress(OSError, ValueError), storage.as_os_errors():
        return read_object(path)
    return {}


def step_budget(config: Mapping[str, Any]) -> int:
    """The budget in environment steps, in whole iterations; 0 if the configuration names none."""
    if "stop.steps" in config and config["stop.steps"] is None:
        return 0
    whole = config.get("derived.num_iterations", 0) * config.get("derived.steps_per_iteration", 0)
    return int(whole or config.get("stop.steps") or 0)


class MetricsTail:
    """Reads metrics.jsonl as it grows; a run that restarts or resumes replaces rows."""

    def __init__(self, folder: epath.Path) -> None:
        self._file = folder / "metrics.jsonl"
        self._offset = 0
        self._last = b""  # the line before the offset; if it changes, the file was replaced

    def poll(self) -> tuple[bool, list[Row]]:
        """(True if the rows replace all earlier ones, new rows), without torn and damaged lines.

        Raises:
          OSError: the file exists and cannot be read, or is larger than any run makes it.
        """
        replaced, lines = self.poll_lines()
        return replaced, [row for line in lines if (row := parse_row(line)) is not None]

    def poll_lines(self) -> tuple[bool, list[bytes]]:
        """The same with whole lines, for readers that need few of them; raises as `poll`."""
        replaced = False
        data = self._read(self._offset - len(self._last))
        if not data.startswith(self._last):
            replaced = True
            self._offset = 0
            self._last = b""
            data = self._read(0)
        whole = data[len(self._last) : data.rfind(b"\n") + 1]
        lines = split_lines(whole, self._file)
        if lines:
            self._offset = self._offset + len(whole)
            self._last = lines[-1]
        return replaced, lines

    def _read(self, offset: int) -> bytes:
        try:
            return read_bytes(self._file, LARGEST_LOG, offset)
        except FileNotFoundError:
            return b""


def _seconds(row: Row) -> float | None:
    return row.get("time/budget_seconds") or row.get("time/seconds")


def parse_row(line: bytes) -> Row | None:
    """The row in a line of metrics.jsonl; None for a torn or damaged one."""
    row = parse_line(line)
    if row is None or not is_number(row.get("step")):
        return None
    # Interned: a row has the same names as the row before, and they are a third of its memory.
    return {sys.intern(name): x for name, x in row.items() if x is None or is_number(x)}


def _expand(name: str) -> list[epath.Path]:
    """The folders that match a name or a pattern."""
    storage.prepare(name)
    parts = epath.Path(os.path.expanduser(name)).parts
    first = next((i for i, part in enumerate(parts) if set(part) & set(_WILDCARDS)), None)
    if first is None or epath.Path(os.path.expanduser(name)).exists():
        return [epath.Path(os.path.expanduser(name))]
    if any("**" in part for part in parts):
        raise ConfigError(f"`{name}` must not hold `**`: `*` is any folder, and runs inside are found")
    return sorted(epath.Path(*parts[:first]).glob("/".join(parts[first:])))


def lock_holder(folder: epath.Path) -> int | None:
    """The process that has, or had, a run's lock; None without a lock or on another machine."""
    if storage.is_remote(folder):
        return None
    try:
        words = read_bytes(folder / ".lock", _LARGEST_LOCK).decode().split()
    except (OSError, ValueError):
        return None
    here = len(words) == 4 and words[3] == socket.gethostname()
    return int(words[1]) if here and re.fullmatch(r"[0-9]{1,9}", words[1]) else None


def suite_rows(suite: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(mode, category, its numbers) of what `jaxrl evaluate --suite` wrote, `all` last."""
    modes = suite.get("modes")
    for mode, found in modes.items() if isinstance(modes, Mapping) else ():
        if isinstance(found, Mapping) and isinstance(found.get("categories"), Mapping):
            for name, row in {**found["categories"], "all": found.get("all")}.items():
                if isinstance(row, Mapping):
                    yield str(mode), str(name), row
