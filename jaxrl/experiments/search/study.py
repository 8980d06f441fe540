"""A study: which trials there are, which comes next, and when one has seen enough."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from jaxrl.experiments.search.samplers import Sampler
from jaxrl.experiments.search.trials import StudyTrial, TrialRecords


class Study(abc.ABC):
    """The trials of a search, shared by all processes that take part in it."""

    @abc.abstractmethod
    def trials(self) -> list[StudyTrial]:
        """All trials by number, also those of other processes."""

    @abc.abstractmethod
    def propose(self) -> StudyTrial | None:
        """Adds the next trial, as running; None where there are enough, or nothing is left to try."""

    @abc.abstractmethod
    def should_prune(self, trial: StudyTrial, step: int, score: float) -> bool:
        """Takes the score that a running trial has at `step`; whether to stop it."""

    @abc.abstractmethod
    def finish(self, trial: StudyTrial) -> None:
        """Records how a trial ended."""


class LocalStudy(Study):
    """A study of which the folder knows everything; no trial is stopped early."""

    def __init__(self, records: TrialRecords, sampler: Sampler, budget: int) -> None:
        self._records, self._sampler, self._budget = records, sampler, budget

    def trials(self) -> list[StudyTrial]:
        return self._records.read()

    def propose(self) -> StudyTrial | None:
        with self._records.locked():
            trials = self._records.read()
            number = next_number(trials)
            if len(trials) >= self._budget or (values := self._sampler.point(number, trials)) is None:
                return None
            trial = StudyTrial(number, values)
            self._records.append(trial)
            return trial

    def should_prune(self, trial: StudyTrial, step: int, score: float) -> bool:
        return False

    def finish(self, trial: StudyTrial) -> None:
        with self._records.locked():
            self._records.append(trial)


def next_number(trials: Sequence[StudyTrial]) -> int:
    return max((trial.number for trial in trials), default=-1) + 1
