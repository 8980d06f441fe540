"""What a search remembers of its trials, in a file that is only appended to, and what they are judged by."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config.errors import ConfigError
from jaxrl.experiments.search.space import as_choice
from jaxrl.runs.records import MetricsTail

RUNNING, DONE, PRUNED, FAILED = "running", "done", "pruned", "failed"


@dataclasses.dataclass(frozen=True)
class StudyTrial:
    """One point of the space and what came of it.

    Attributes:
      number: names its folder; numbers may have gaps.
      values: of the dimensions, by name.
      state: "running", "done", "pruned" or "failed".
      score: the metric, whichever direction is better; None while it is unknown.
      seconds: of training alone, as `stop.seconds` counts them.
      reason: why it failed, in one line.
      here: whether its run is in this folder, and not another process's elsewhere.
    """

    number: int
    values: Mapping[str, Any]
    state: str = RUNNING
    score: float | None = None
    seconds: float | None = None
    reason: str = ""
    here: bool = True

    @property
    def ended(self) -> bool:
        return self.state != RUNNING


class TrialRecords:
    """`trials.jsonl`: a line when a trial starts and one when it ends; the last line of a trial counts.

    Several processes may append to one file: each line is one write under a lock.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "trials.jsonl"
        self._lock = folder / ".search.lock"

    def read(self) -> list[StudyTrial]:
        """All trials by number; a torn or damaged line is left out."""
        found: dict[int, StudyTrial] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in self._file.read_bytes().splitlines():
                if (trial := _trial(line)) is not None:
                    found[trial.number] = trial
        return [found[number] for number in sorted(found)]

    def append(self, trial: StudyTrial) -> None:
        """Adds a line. Call it inside `locked`, where other processes write too.

        Raises:
          ConfigError: it cannot be written.
        """
        record = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial) if f.name != "here"}
        data = json.dumps(record).encode() + b"\n"
        try:
            with self._file.open("ab+") as stream:
                if stream.seek(0, os.SEEK_END) and not _ends_a_line(stream):
                    data = b"\n" + data  # After a line that a kill tore.
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise ConfigError(f"{self._file} cannot be written: {error}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from choosing and adding trials meanwhile."""
        with self._lock.open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _ends_a_line(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    return bool(stream.read(1) == b"\n")


def _trial(line: bytes) -> StudyTrial | None:
    try:
        record = json.loads(line)
        values = {name: as_choice(value) for name, value in record.pop("values").items()}
        return StudyTrial(values=values, **record)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a trial is judged by.

    Attributes:
      metric: key of metrics.jsonl.
      score: "final", its last value, or "mean", the mean of all, which rewards learning early.
      direction: "maximize" or "minimize".
    """

    metric: str = "eval/return"
    score: str = "final"
    direction: str = "maximize"

    def of(self, curve: np.ndarray) -> float | None:
        """The score of the values so far; None where there is none, or it is not finite."""
        if not curve.size:
            return None
        value = float(curve.mean() if self.score == "mean" else curve[-1])
        return value if math.isfinite(value) else None

    def gain(self, score: float) -> float:
        """The score with its sign turned where less is better."""
        return score if self.direction == "maximize" else -score

    def ranked(self, trials: list[StudyTrial]) -> list[StudyTrial]:
        """The trials that ran to their end, the best first; equal ones in their order."""
        done = [trial for trial in trials if trial.state == DONE and trial.score is not None]
        return sorted(done, key=lambda trial: -self.gain(trial.score or 0.0))


class TrialCurve:
    """What a trial's run has logged so far, read from its folder as it grows."""

    def __init__(self, folder: Path, metric: str) -> None:
        self._tail = MetricsTail(epath.Path(folder))
        self._metric = metric
        self._rows: dict[float, float] = {}
        self.seconds: float | None = None
        self.keys: set[str] = set()

    def poll(self) -> bool:
        """Reads what is new; whether the metric has a new value."""
        replaced, rows = self._tail.poll()
        before = len(self._rows)
        if replaced:
            self._rows.clear()
        for row in rows:
            self.keys |= row.keys()
            self.seconds = row.get("time/budget_seconds") or self.seconds
            if self._metric in row:
                value = row[self._metric]
                self._rows[row["step"]] = math.nan if value is None else value
        return len(self._rows) != before

    def history(self) -> Iterator[tuple[int, np.ndarray]]:
        """Each step at which the metric was logged, and its values until then."""
        values = self.curve
        for count, step in enumerate(sorted(self._rows), start=1):
            yield int(step), values[:count]

    @property
    def step(self) -> int:
        """That of the metric's latest value."""
        return int(max(self._rows, default=0))

    @property
    def curve(self) -> np.ndarray:
        """The metric's values by step, float64; NaN where it was not finite."""
        return np.array([self._rows[step] for step in sorted(self._rows)], np.float64)
