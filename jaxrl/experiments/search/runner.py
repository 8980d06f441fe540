"""The loop of a search: start trials, watch them, stop the hopeless, record how each ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.experiments.search.display import SearchDisplay
from jaxrl.experiments.search.executor import Ending, Executor, PlannedRun
from jaxrl.experiments.search.folder import SearchFolder
from jaxrl.experiments.search.options import SearchOptions
from jaxrl.experiments.search.space import Space
from jaxrl.experiments.search.study import Study
from jaxrl.experiments.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial, TrialCurve
from jaxrl.parallel.signals import Interruption

_POLL_SECONDS = 0.1
_NO_METRIC = "it logged no"
_STEPS_OF_A_GRACE = 20  # evaluations in a run whose trials may be stopped early, at the least


@dataclass(frozen=True)
class Task:
    """What every trial trains.

    Attributes:
      config: the configuration that trials change.
      space: what they change.
      objective: what they are judged by.
      is_compared_early: whether trials are compared while they train, for which they are evaluated every 5%
        of their steps.
      exchanges: whether they are members that exchange what they have learnt: each saves whenever it is
        evaluated.
      has_own_seeds: whether each has a seed of its own, counted from the configuration's.
    """

    config: ConfigDict
    space: Space
    objective: Objective
    is_compared_early: bool = False
    exchanges: bool = False
    has_own_seeds: bool = False

    @classmethod
    def of(cls, config: ConfigDict, space: Space, options: SearchOptions) -> Task:
        """What the trials of a search train."""
        return cls(
            config=config,
            space=space,
            objective=Objective(options.metric, options.score, options.direction),
            is_compared_early=options.prunes or options.exchanges,
            exchanges=options.exchanges,
            # A run that Ray copies goes on with everything it had, its random numbers included.
            has_own_seeds=options.method == "pbt",
        )

    def configured(self, trial: StudyTrial, seed: int | None = None) -> Config:
        """The configuration of a trial, with another seed to verify it.

        Raises:
          ConfigError: its values are not valid together.
        """
        config = self.space.apply(self.config, trial.values)
        if seed is not None:
            config.seed = seed
        if "jsonl" not in config.log.writers:
            config.log.writers = (*config.log.writers, "jsonl")
        if self.has_own_seeds and seed is None:
            config.seed += trial.number
        if self.is_compared_early:  # Also to verify: a mean over other evaluations would be another score.
            often = max(1, config.stop.steps // _STEPS_OF_A_GRACE)
            config.evaluate.every_steps = min(config.evaluate.every_steps or often, often)
        if self.exchanges:
            config.checkpoint.update(every_steps=config.evaluate.every_steps, every_seconds=0.0)
        return check_config(config)


@dataclass
class _Running:
    trial: StudyTrial
    curve: TrialCurve
    began: float
    pruned: bool = False


class TrialRunner:
    """Runs the trials of a study, as many at a time as the executor takes."""

    def __init__(
        self,
        task: Task,
        study: Study,
        executor: Executor,
        folder: SearchFolder,
        display: SearchDisplay,
        interruption: Interruption,
    ) -> None:
        self._task, self._study, self._executor = task, study, executor
        self._folder, self._display, self._interruption = folder, display, interruption
        self._running: dict[str, _Running] = {}
        self._has_started = False

    def run(self) -> bool:
        """Runs until nothing is left to start.

        Returns:
          Whether there is nothing to wait for: no trial of another process still runs, or it is elsewhere and
          there was nothing to do here from the beginning.

        Raises:
          ConfigError: the first trial to end did not log the metric.
          RunError: there is no valid point to go on with.
        """
        self._adopt()
        proposes = True
        while True:
            for ending in self._executor.poll():
                self._end(ending)
            self._watch()
            if self._display.is_due():
                self._display.update(self._study.trials())
            while proposes and self._executor.room():
                trial = self._study.propose()
                proposes = trial is not None
                if trial is not None:
                    self._start([trial])
            if not self._running and not proposes:
                others = [trial for trial in self._study.trials() if not trial.ended]
                if not others:
                    return True
                if not any(trial.here for trial in others):
                    return not self._has_started  # Said once; another host may have gone for good.
                if not self._folder.is_alone():
                    return False
                self._adopt()  # A run whose search was killed may take a while to save.
            if self._interruption.signum is not None:
                self._executor.close()
                return False
            time.sleep(_POLL_SECONDS)

    def _adopt(self) -> None:
        """Continues trials that were left unfinished here, and whose process has ended."""
        for trial in self._study.trials():
            if trial.here and not trial.ended and str(trial.number) not in self._running:
                if not self._executor.room():
                    return
                self._start([trial])

    def _start(self, trials: Sequence[StudyTrial]) -> None:
        for trial in trials:
            name, folder = str(trial.number), self._folder.trial(trial.number)
            run = PlannedRun(name, self._task.configured(trial), folder)
            if self._executor.start([run]):
                curve = TrialCurve(folder, self._task.objective.metric)
                self._running[name] = _Running(trial, curve, time.monotonic())
                self._has_started = True

    def _watch(self) -> None:
        """Reads new evaluations and stops trials that the study gives up."""
        for name, running in self._running.items():
            if running.pruned or not running.curve.poll():
                continue
            score = self._task.objective.of(running.curve.curve)
            if score is not None and self._study.should_prune(running.trial, running.curve.step, score):
                running.pruned = True
                self._executor.stop(name)

    def _end(self, ending: Ending) -> None:
        running = self._running.pop(ending.name)
        trial = concluded(running.trial, running.curve, self._task.objective, ending.reason, running.pruned)
        self._study.finish(trial)
        self._display.ended(trial, time.monotonic() - running.began)
        if (problem := unknown_metric(trial, self._study.trials(), self._task.objective)) is not None:
            self._executor.close()
            raise problem


def concluded(
    trial: StudyTrial, curve: TrialCurve, objective: Objective, reason: str, pruned: bool
) -> StudyTrial:
    """A trial whose run has ended; before its time for a `reason`, or because it was stopped (`pruned`)."""
    curve.poll()
    trial = replace(trial, score=objective.of(curve.curve), seconds=curve.seconds)
    if reason and pruned:
        return replace(trial, state=PRUNED)
    if reason:
        return replace(trial, state=FAILED, reason=reason)
    if not curve.curve.size:
        hint = did_you_mean(objective.metric, curve.keys - {"step", "time"})
        return replace(trial, state=FAILED, reason=f"{_NO_METRIC} {objective.metric}{hint}")
    if trial.score is None:
        return replace(trial, state=FAILED, reason=f"{objective.metric} is not finite")
    return replace(trial, state=DONE)


def unknown_metric(
    trial: StudyTrial, trials: Sequence[StudyTrial], objective: Objective
) -> ConfigError | None:
    """The error that ends a search whose first trials do not log the metric."""
    if not trial.reason.startswith(_NO_METRIC) or any(t.state in (DONE, PRUNED) for t in trials):
        return None
    return ConfigError(f"`--metric` (={objective.metric!r}): trial {trial.number}: {trial.reason}")


def run_all(runs: Sequence[PlannedRun], executor: Executor, interruption: Interruption) -> dict[str, str]:
    """Runs several runs to their ends; returns why each failed, "" where it did not.

    Raises:
      RunError: another process has one of them.
    """
    waiting, reasons = list(runs), dict[str, str]()
    while waiting or len(reasons) < len(runs):
        for ending in executor.poll():
            reasons[ending.name] = ending.reason
        while waiting and executor.room():
            run = waiting.pop(0)
            if not executor.start([run]):
                raise RunError(f"{run.folder} is in use by another process: wait for that and run this again")
        if interruption.signum is not None:
            executor.close()
            break
        time.sleep(_POLL_SECONDS)
    return reasons
