"""The trials of a search: their task and its score, and their records in a file that only grows."""

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
from ml_collections import ConfigDict

from jaxrl.config import Config, check_config
from jaxrl.config.data_files import read_objects
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import check
from jaxrl.runs.records import MetricsTail
from jaxrl.search.dimension import as_choice
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space

RUNNING, DONE, PRUNED, FAILED = _STATES = "running", "done", "pruned", "failed"
_FEWEST_EVALUATIONS = 20  # in a run of a trial that may be stopped early


@dataclasses.dataclass(frozen=True)
class StudyTrial:
    """One point of the space and its outcome.

    Attributes:
      number: names its folder; numbers may have gaps.
      values: of the dimensions, by name.
      state: "running", "done", "pruned" or "failed".
      score: the score of the objective, with its own sign; None while it is unknown.
      seconds: of training alone, as `stop.seconds` counts them.
      reason: the reason why it failed, in one line.
      here: True if its run is in this folder, not in another process's.
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
        """All trials by number; a torn or damaged line is left out.

        Raises:
          ConfigError: the file is there and cannot be read.
        """
        found: dict[int, StudyTrial] = {}
        try:
            for record in read_objects(self._file):
                if (trial := _trial(record)) is not None:
                    found[trial.number] = trial
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"{self._file} cannot be read: {error.strerror or error}") from error
        return [found[number] for number in sorted(found)]

    def append(self, trial: StudyTrial) -> None:
        """Adds a line. Other processes may write too: call it inside `lock`.

        Raises:
          ConfigError: it cannot be written.
        """
        record = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial) if f.name != "here"}
        data = json.dumps(record).encode() + b"\n"
        try:
            with self._file.open("ab+") as stream:
                if stream.seek(0, os.SEEK_END):
                    stream.seek(-1, os.SEEK_END)
                    if stream.read(1) != b"\n":
                        data = b"\n" + data  # After a line that a kill cut short.
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise ConfigError(f"{self._file} cannot be written: {error}") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from choosing and adding trials meanwhile."""
        with self._lock.open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


# Of what a line holds; text is of states or a reason.
_KINDS: dict[str, Any] = {
    "number": int,
    "state": str,
    "score": float | None,
    "seconds": float | None,
    "reason": str,
}


def _trial(record: dict[str, Any]) -> StudyTrial | None:
    """The trial of a line; None if it is none, as in a damaged file."""
    values = record.pop("values", None)
    if not isinstance(values, dict) or "number" not in record or record.keys() - _KINDS:
        return None
    try:
        fields = {name: check(name, value, _KINDS[name]) for name, value in record.items()}
    except ConfigError:
        return None
    if fields["number"] < 0 or fields.get("state", RUNNING) not in _STATES:
        return None
    return StudyTrial(values={name: as_choice(value) for name, value in values.items()}, **fields)


@dataclasses.dataclass(frozen=True)
class Objective:
    """The score of a trial.

    Attributes:
      metric: key of metrics.jsonl.
      score: "final", its last value, or "mean", the mean of all, which rewards learning early.
      direction: "maximize" or "minimize".
    """

    metric: str = "eval/return"
    score: str = "final"
    direction: str = "maximize"

    def of(self, curve: np.ndarray) -> float | None:
        """The score of the values so far; None if there is none, or it is not finite."""
        if not curve.size:
            return None
        value = float(curve.mean() if self.score == "mean" else curve[-1])
        return value if math.isfinite(value) else None

    def gain(self, score: float) -> float:
        """The score, negated if less is better."""
        return score if self.direction == "maximize" else -score

    def rank(self, trials: list[StudyTrial]) -> list[StudyTrial]:
        """The trials that ran to their end, the best first; equal ones in their order."""
        done = [trial for trial in trials if trial.state == DONE and trial.score is not None]
        return sorted(done, key=lambda trial: -self.gain(trial.score or 0.0))


@dataclasses.dataclass(frozen=True)
class Task:
    """The task of every trial: the configuration with values of a space, and the options of the search."""

    config: ConfigDict
    space: Space
    options: SearchOptions

    @property
    def objective(self) -> Objective:
        """The score of a trial."""
        return Objective(self.options.metric, self.options.score, self.options.direction)

    def problem(self, values: Mapping[str, Any]) -> str:
        """The reason why values cannot be trained together, such as counts that do not divide; else ""."""
        try:
            check_config(self.space.apply(self.config, values))
        except ConfigError as error:
            return str(error)
        return ""

    def config_of(self, trial: StudyTrial, seed: int | None = None) -> Config:
        """The configuration of a trial, with another seed to verify it.

        Trials that are compared while they train are evaluated every 5% of their steps; members that exchange
        what they have learnt save at each of these evaluations.

        Raises:
          ConfigError: its values are not valid together.
        """
        config = self.space.apply(self.config, trial.values)
        if seed is not None:
            config.seed = seed
        elif self.options.method == "pbt":
            # Not of Ray's members: a run that Ray copies continues with its whole state and random numbers.
            config.seed += trial.number
        if "jsonl" not in config.log.writers:
            config.log.writers = (*config.log.writers, "jsonl")
        # Also to verify: a mean over other evaluations would be another score.
        if self.options.prunes or self.options.exchanges:
            often = max(1, config.stop.steps // _FEWEST_EVALUATIONS)
            config.evaluate.every_steps = min(config.evaluate.every_steps or often, often)
        if self.options.exchanges:
            config.checkpoint.update(every_steps=config.evaluate.every_steps, every_seconds=0.0)
        return check_config(config)


class TrialCurve:
    """The values of the metric that a trial's run has logged so far, read from its folder as it grows."""

    def __init__(self, folder: Path, metric: str) -> None:
        self._tail = MetricsTail(epath.Path(folder))
        self._metric = metric
        self._rows: dict[float, float] = {}
        self.seconds: float | None = None
        self.keys: set[str] = set()

    def poll(self) -> bool:
        """Reads new rows; returns True if the metric has a new value."""
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
        """The step of the metric's latest value."""
        return int(max(self._rows, default=0))

    @property
    def curve(self) -> np.ndarray:
        """The metric's values by step, float64; NaN if it was not finite."""
        return np.array([self._rows[step] for step in sorted(self._rows)], np.float64)
