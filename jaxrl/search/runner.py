"""The loop of a search: start trials, watch them, stop unpromising ones, record their ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, words
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.runs.executor import Ending, Executor, PlannedRun, ran_out_of_disk
from jaxrl.runs.signals import Interruption
from jaxrl.search.display import SearchDisplay
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.study import Study
from jaxrl.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial, TrialCurve

_POLL_SECONDS = 0.1
_NO_METRIC = "it logged no"
_FEWEST_EVALUATIONS = 20  # in a run of a trial that may be stopped early


@dataclass(frozen=True)
class Task:
    """The task of every trial.

    Attributes:
      objective: the score of a trial.
      is_compared_early: True if trials are compared while they train: they are evaluated every 5% of their
        steps.
      exchanges: True if they are members that exchange what they have learnt: each saves at every
        evaluation.
      has_own_seeds: True if each has a seed of its own, counted from the configuration's.
    """

    config: ConfigDict
    space: Space
    objective: Objective
    is_compared_early: bool = False
    exchanges: bool = False
    has_own_seeds: bool = False

    @classmethod
    def of(cls, config: ConfigDict, space: Space, options: SearchOptions) -> Task:
        """The task of a search with these options."""
        return cls(
            config=config,
            space=space,
            objective=Objective(options.metric, options.score, options.direction),
            is_compared_early=options.prunes or options.exchanges,
            exchanges=options.exchanges,
            # A run that Ray copies continues with its whole state, its random numbers included.
            has_own_seeds=options.method == "pbt",
        )

    def config_of(self, trial: StudyTrial, seed: int | None = None) -> Config:
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
            often = max(1, config.stop.steps // _FEWEST_EVALUATIONS)
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


@dataclass(eq=False)
class TrialRunner:
    """Runs the trials of a study, as many at a time as the executor takes."""

    task: Task
    study: Study
    executor: Executor
    folder: SearchFolder
    display: SearchDisplay
    interruption: Interruption
    _running: dict[str, _Running] = field(default_factory=dict, init=False)
    _has_started: bool = field(default=False, init=False)

    def run(self) -> bool:
        """Runs until no trial is left to start.

        Returns:
          True unless trials of other processes must be waited for. Trials in other folders need not be if
          this process has started none.

        Raises:
          ConfigError: the first trial to end did not log the metric.
          RunError: no valid point was found.
        """
        self._adopt()
        proposes = True
        while True:
            for ending in self.executor.poll():
                self._end(ending)
            self._watch()
            if self.display.is_due():
                self.display.update(self.study.trials())
            while proposes and self.executor.room():
                trial = self.study.propose()
                proposes = trial is not None
                if trial is not None:
                    self._start(trial)
            if not self._running and not proposes:
                others = [trial for trial in self.study.trials() if not trial.ended]
                if not others:
                    return True
                if not any(trial.here for trial in others):
                    return not self._has_started  # Reported once; another host may have stopped for good.
                if not self.folder.is_alone():
                    return False
                self._adopt()  # A run whose search was killed may take a while to save.
            if self.interruption.signum is not None:
                self.executor.close()
                return False
            time.sleep(_POLL_SECONDS)

    def _adopt(self) -> None:
        """Continues unfinished trials of this folder whose process has ended."""
        for trial in self.study.trials():
            if trial.here and not trial.ended and str(trial.number) not in self._running:
                if not self.executor.room():
                    return
                self._start(trial)

    def _start(self, trial: StudyTrial) -> None:
        name, folder = str(trial.number), self.folder.trial(trial.number)
        if self.executor.start([PlannedRun(name, self.task.config_of(trial), folder)]):
            curve = TrialCurve(folder, self.task.objective.metric)
            self._running[name] = _Running(trial, curve, time.monotonic())
            self._has_started = True

    def _watch(self) -> None:
        """Reads new evaluations and stops trials that the study prunes."""
        for name, running in self._running.items():
            if running.pruned or not running.curve.poll():
                continue
            score = self.task.objective.of(running.curve.curve)
            if score is not None and self.study.should_prune(running.trial, running.curve.step, score):
                running.pruned = True
                self.executor.stop(name)

    def _end(self, ending: Ending) -> None:
        running = self._running.pop(ending.name)
        if ran_out_of_disk(ending, self.folder.path):
            # Not recorded as failed: the trial continues from its checkpoint.
            raise RunError(
                f"trial {ending.name}: {ending.reason}: the disk of {self.folder.path} is full; with free "
                "space the same command continues all trials"
            )
        trial = conclude(running.trial, running.curve, self.task.objective, ending.reason, running.pruned)
        self.study.finish(trial)
        self.display.show_end(trial, time.monotonic() - running.began)
        if (problem := unknown_metric(trial, self.study.trials(), self.task.objective)) is not None:
            self.executor.close()
            raise problem


def conclude(
    trial: StudyTrial, curve: TrialCurve, objective: Objective, reason: str, pruned: bool
) -> StudyTrial:
    """The trial after the end of its run; early for a `reason`, or because it was stopped (`pruned`)."""
    curve.poll()
    trial = replace(trial, score=objective.of(curve.curve), seconds=curve.seconds)
    if reason and pruned:
        return replace(trial, state=PRUNED)
    if reason:
        return replace(trial, state=FAILED, reason=reason)
    if not curve.curve.size:
        hint = words.metric_hint(objective.metric)
        hint = hint or did_you_mean(objective.metric, curve.keys - {"step", "time"})
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
