"""A study: its trials, proposals for further ones, and decisions to stop one early."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from jaxrl.search.samplers import Sampler
from jaxrl.search.trials import StudyTrial, TrialRecords


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
