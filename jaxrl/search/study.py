"""A study: its trials, the points of further ones, and decisions to stop one early."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.config.errors import ConfigError
from jaxrl.search.trials import StudyTrial, Task, TrialRecords

MOST_DRAWS = 1000  # in a row without a valid point


class Sampler(abc.ABC):
    """Chooses the point of each trial from its number and the trials before; has no state."""

    @abc.abstractmethod
    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        """The values of trial `number`, valid together; None if no point is left."""


class GridSampler(Sampler):
    """Every valid combination; if they are more than the trials, in an order that the seed shuffles.

    None is tried twice, also if the number of trials was another before, and with it the order.
    """

    def __init__(self, task: Task) -> None:
        """Lists the points of the grid; ConfigError if no combination is valid."""
        grid = list(task.space.grid())
        self._points = [values for values in grid if not task.problem(values)]
        self.size = len(self._points)
        self.invalid = len(grid) - len(self._points)
        if not self._points:
            raise ConfigError(f"no combination of the space is valid: {task.problem(grid[0])}")
        if self.size > task.options.budget:
            order = np.random.default_rng(task.options.seed).permutation(self.size)
            self._points = [self._points[index] for index in order]

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        tried = {_key(trial.values) for trial in trials}
        return next((values for values in self._points if _key(values) not in tried), None)


def _key(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class RandomSampler(Sampler):
    """Independent samples, each determined by the seed and the trial's number."""

    task: Task

    def point(self, number: int, trials: Sequence[StudyTrial] = ()) -> dict[str, Any]:
        return draw(self.task, generator(self.task.options.seed, number))


def generator(seed: int, number: int, place: str = "") -> np.random.Generator:
    """Random numbers for one trial, from the seed, its number and optionally a place."""
    return np.random.default_rng((seed, number, *place.encode()))


def draw(task: Task, rng: np.random.Generator) -> dict[str, Any]:
    """A random valid point of the space; ConfigError if none was found."""
    problem = ""
    for _ in range(MOST_DRAWS):
        values = task.space.at(rng.random(len(task.space.dimensions)))
        if not (problem := task.problem(values)):
            return values
    raise ConfigError(f"none of {MOST_DRAWS} random points of the space is valid: {problem}")


class Study(abc.ABC):
    """The trials of a search, shared by all processes that take part in it."""

    @abc.abstractmethod
    def trials(self) -> list[StudyTrial]:
        """All trials by number, also of other processes."""

    @abc.abstractmethod
    def propose(self) -> StudyTrial | None:
        """Adds the next trial, as running; None if there are enough, or no point is left."""

    @abc.abstractmethod
    def should_prune(self, trial: StudyTrial, step: int, score: float) -> bool:
        """True if a running trial with this score at `step` is to be stopped."""

    @abc.abstractmethod
    def finish(self, trial: StudyTrial) -> None:
        """Records a trial that has ended."""


@dataclass(frozen=True)
class LocalStudy(Study):
    """A study that its folder holds completely; no trial is stopped early."""

    records: TrialRecords
    sampler: Sampler
    budget: int

    def trials(self) -> list[StudyTrial]:
        return self.records.read()

    def propose(self) -> StudyTrial | None:
        with self.records.lock():
            trials = self.records.read()
            number = next_number(trials)
            if len(trials) >= self.budget or (values := self.sampler.point(number, trials)) is None:
                return None
            trial = StudyTrial(number, values)
            self.records.append(trial)
            return trial

    def should_prune(self, trial: StudyTrial, step: int, score: float) -> bool:
        return False

    def finish(self, trial: StudyTrial) -> None:
        with self.records.lock():
            self.records.append(trial)


def next_number(trials: Sequence[StudyTrial]) -> int:
    """The number of the next trial."""
    return max((trial.number for trial in trials), default=-1) + 1
