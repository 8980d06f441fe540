"""Decisions that all processes of a run share: when to stop, what is due, how much to dispatch at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from jaxrl.config import Config
from jaxrl.config.errors import RunError
from jaxrl.config.training_stages import TrainingStage
from jaxrl.metrics.clock import Clock
from jaxrl.runs.signals import Interruption
from jaxrl.training.plan import TrainingPlan
from jaxrl.training.progress import Progress
from jaxrl.types import Array

# Target length of a dispatch: signals and time budgets wait for one to finish. One iteration may take longer.
DISPATCH_SECONDS = 0.5
STAGE = "stage"  # a reason to stop that does not end the run


@dataclass(frozen=True)
class ProcessStatus:
    """The values that one process sends to the others.

    Attributes:
      signum: the signal it received, or 0.
      trained_seconds: of training since the start of the run, without the warm-up.
      wall_seconds: since the start of the process.
      closing_seconds: that the run would take to end now.
      iterations: to dispatch at once: enough that the host costs nothing, few enough to respond soon to a
        signal or a time budget. No result depends on it.
    """

    signum: float = 0
    trained_seconds: float = 0.0
    wall_seconds: float = 0.0
    closing_seconds: float = 0.0
    iterations: float = 1


class Coordinator:
    """The signal, elapsed time and dispatch size that all processes of a run act on.

    A process on its own uses its own values at once. Several exchange theirs after every dispatch, while
    the devices work. The values sent with the last finished dispatch are in force: all processes finish
    the same dispatches in the same order, so they decide alike without waiting for each other.
    """

    def __init__(
        self,
        clock: Clock,
        gather: Callable[[Sequence[float]], Array] | None = None,
        interruption: Interruption | None = None,
        dispatch_seconds: float = DISPATCH_SECONDS,
    ) -> None:
        """Starts without values of other processes.

        Args:
          gather: sends numbers to all processes (`Topology.gatherer`); None if there is only one.
          interruption: the signals that this process receives; None for a process that catches none.
        """
        self.interruption = interruption or Interruption()
        self._clock = clock
        self._gather = gather
        self._dispatch_seconds = dispatch_seconds
        self._iterations = 1
        self._received = ProcessStatus()

    @property
    def signum(self) -> int | None:
        """The signal on which all processes save and stop; None until they agree on one."""
        return int(self.status.signum) or None

    @property
    def status(self) -> ProcessStatus:
        """The values in force."""
        return self._received if self._gather else self._own

    def gives_up(self) -> bool:
        """True if a signal ends a wait early: never with other processes, which would then hang."""
        return self._gather is None and self.interruption.signum is not None

    def begin(self) -> None:
        """Exchanges the first values; the processes wait for each other."""
        self.receive(self.send())

    def send(self) -> Array | None:
        """Starts sending this process's values; pass the result to `receive` once it is ready."""
        if self._gather is None:
            return None
        return self._gather(astuple(self._own))

    def receive(self, sent: Array | None) -> None:
        """Waits for the values of all processes, as `send` returned them, and puts them in force."""
        if sent is None:
            return
        numbers = np.asarray(sent)
        latest = ProcessStatus(*map(float, numbers.max(axis=0)))
        signum = self._received.signum or latest.signum
        self._received = replace(latest, signum=signum, iterations=float(numbers[:, -1].min()))
        if signum:
            self.interruption.adopt(int(signum))

    def record_dispatch(self, iterations: int, seconds: float) -> None:
        """Records the seconds that a dispatch of `iterations` took here; the next one at most doubles."""
        if iterations and seconds > 0:
            fitting = int(self._dispatch_seconds * iterations / seconds)
            self._iterations = max(1, min(fitting, 2 * self._iterations))

    @property
    def _own(self) -> ProcessStatus:
        clock = self._clock
        return ProcessStatus(
            signum=self.interruption.signum or 0,
            trained_seconds=clock.trained_seconds(),
            wall_seconds=clock.wall_seconds(),
            closing_seconds=clock.closing_seconds(),
            iterations=self._iterations,
        )


@dataclass(frozen=True)
class Due:
    """The work of the host at the end of an iteration."""

    row: bool
    evaluation: bool
    checkpoint: bool


@dataclass(frozen=True)
class Schedule:
    """The intervals and budgets of a stage, and what the processes of the run agreed on."""

    plan: TrainingPlan
    index: int
    coordinator: Coordinator

    @property
    def config(self) -> Config:
        """The configuration of the stage."""
        return self.plan.configs[self.index]

    @property
    def stage(self) -> TrainingStage | None:
        """The stage; None if the run has none."""
        return self.plan.stages[self.index] if self.plan.stages else None

    def due(self, iteration: int, saved_at: float = math.inf, logged_at: float = math.inf) -> Due:
        """The work that is due at the end of `iteration`, counted from 1 on.

        Args:
          saved_at: `wall_seconds` at the latest save.
          logged_at: `trained_seconds` at the latest row.
        """
        config = self.config
        is_late = self.coordinator.status.trained_seconds - logged_at >= config.log_seconds
        every = config.checkpoint.every_seconds
        by_time = every > 0 and self.coordinator.status.wall_seconds - saved_at >= every
        return Due(
            row=iteration % config.log_iterations == 0 or is_late,
            evaluation=_is_multiple(iteration, config.evaluate_iterations),
            checkpoint=_is_multiple(iteration, config.checkpoint_iterations) or by_time,
        )

    def stop_reason(self, progress: Progress) -> str | None:
        """The reason why the run ends here; None to train on.

        The name of a signal, "return", "steps", "seconds" or "wall_seconds"; `STAGE` if only the stage ends.
        """
        stop = self.config.stop
        finished = progress.iteration >= self.config.num_iterations
        if self.coordinator.signum is not None and not finished:
            return self.coordinator.interruption.name
        target = stop.target_return
        if target is not None and progress.has_reached(target, stop.every_mode):
            return "return"
        if finished:
            return "steps"
        if self.stage is not None and (ended := self._ended_stage(self.stage, progress)):
            return ended if self.index == self.plan.last else STAGE
        if stop.seconds is not None and self.coordinator.status.trained_seconds >= stop.seconds:
            return "seconds"
        if stop.wall_seconds is not None and self._is_last_moment(stop.wall_seconds):
            return "wall_seconds"
        return None

    def next_event(self, progress: Progress) -> int:
        """The first iteration after `progress` at whose end the host must check."""
        event = self.config.next_event(progress.iteration)
        if self.stage is None or self.stage.iterations is None:
            return event
        return min(event, progress.stage_iteration + self.stage.iterations)

    def _ended_stage(self, stage: TrainingStage, progress: Progress) -> str | None:
        """The budget that is used up; None if the stage continues."""
        if progress.stage != self.index:
            return STAGE  # A rollback has led to an earlier one.
        if stage.iterations is not None and progress.iteration - progress.stage_iteration >= stage.iterations:
            return "steps"
        target = stage.target_return
        every_mode = self.config.stop.every_mode
        is_of_stage = progress.evaluated_at > progress.stage_iteration
        if target is not None and is_of_stage and progress.has_reached(target, every_mode):
            return "return"
        seconds = self.coordinator.status.trained_seconds - progress.stage_seconds
        return "seconds" if stage.seconds is not None and seconds >= stage.seconds else None

    def out_of_time(self, compiled: float) -> RunError:
        """The error to raise if `stop.wall_seconds` has left no time for a step; `compiled` is in seconds."""
        return RunError(
            f"no step was made: of `stop.wall_seconds` (={self.config.stop.wall_seconds:g}), "
            f"{self.coordinator.status.wall_seconds:.1f} s had passed, {compiled:.1f} s of them compiling, "
            "and the rest is needed to end the run: allow more"
        )

    def _is_last_moment(self, limit: float) -> bool:
        """True if training must stop for the process to end by `limit`; not before half of it."""
        left = limit - self.coordinator.status.wall_seconds
        return left <= min(self.coordinator.status.closing_seconds, limit / 2)


def _is_multiple(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0
