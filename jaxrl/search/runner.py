"""The loop of a search: start trials, watch and show them, stop unpromising ones, record their ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

from jaxrl.config import ConfigError, text, words
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.reporting.display.live_panel import LivePanel
from jaxrl.runs.executor import Ending, Executor, PlannedRun, ran_out_of_disk
from jaxrl.runs.signals import Interruption
from jaxrl.search.dimension import label
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.study import Study
from jaxrl.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial, Task, TrialCurve

if TYPE_CHECKING:
    from rich.console import RenderableType

_POLL_SECONDS = 0.1
_LINE_SECONDS = 60.0  # between lines about the whole search, if the display cannot be redrawn
_REFRESH_SECONDS = 1.0
_NO_METRIC = "it logged no"


class SearchDisplay:
    """Shows a search: trials done, running, pruned and failed, the best so far, the time left."""

    def __init__(
        self, title: str, total: int, jobs: int | None, objective: Objective, stream: TextIO | None = None
    ) -> None:
        self._total = total
        self._jobs = jobs
        self._objective = objective
        self._seconds: list[float] = []
        self._shown = time.monotonic()
        self._trials: Sequence[StudyTrial] = ()
        self._panel = LivePanel(self._bar, stream)
        self.message(title)
        self._panel.open()

    def is_due(self) -> bool:
        """True if the interval between updates has passed."""
        every = _REFRESH_SECONDS if self._panel.is_live else _LINE_SECONDS
        return time.monotonic() - self._shown >= every

    def update(self, trials: Sequence[StudyTrial]) -> None:
        """Shows the state of all trials."""
        self._shown = time.monotonic()
        self._trials = tuple(trials)
        if not self._panel.is_live:
            self.message(self.line(trials))

    def line(self, trials: Sequence[StudyTrial]) -> str:
        """`12 of 20 trials done, 2 running, 1 failed, best 487.3 (trial 4), 3:20 left`."""
        counts = {state: sum(t.state == state for t in trials) for state in (DONE, PRUNED, FAILED)}
        running = sum(not trial.ended for trial in trials)
        parts = [f"{counts[DONE]} of {self._total} trials done", f"{running} running"]
        parts += [f"{counts[state]} {state}" for state in (PRUNED, FAILED)]
        if ranked := self._objective.rank(list(trials)):
            parts.append(f"best {text.number(ranked[0].score)} (trial {ranked[0].number})")
        if (left := self._left(trials)) is not None:
            parts.append(f"{text.clock(left)} left")
        return ", ".join(parts)

    def _left(self, trials: Sequence[StudyTrial]) -> float | None:
        if not self._seconds:
            return None
        open_ = max(self._total - sum(trial.ended for trial in trials), 0)
        jobs = self._jobs or max(1, sum(not trial.ended for trial in trials))
        return open_ * sum(self._seconds) / len(self._seconds) / jobs

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        ended = sum(trial.ended for trial in self._trials)
        line = Text(self.line(self._trials), overflow="ellipsis", no_wrap=True)
        grid.add_row(ProgressBar(total=max(self._total, 1), completed=ended, width=20), line)
        return grid

    def show_end(self, trial: StudyTrial, seconds: float) -> None:
        """Prints a line on a trial that has ended, `seconds` after it started."""
        self._seconds.append(seconds)
        self.message(describe(trial))

    def message(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        self._panel.message(line)

    def close(self) -> None:
        self._panel.close()


def describe(trial: StudyTrial) -> str:
    """`trial 3: done, 487.3 in 12 s, ppo.learning_rate 0.0003`."""
    score = "" if trial.score is None else f", {text.number(trial.score)}"
    spent = "" if trial.seconds is None else f" in {text.seconds(trial.seconds)}"
    values = ", ".join(f"{name} {label(value)}" for name, value in trial.values.items())
    said = f": {trial.reason}" if trial.state == FAILED else f"{score}{spent}"
    return f"trial {trial.number}: {trial.state}{said}, {values}"


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
