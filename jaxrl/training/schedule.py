"""The schedule of a run: the times at which something is due, and its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxrl.config import Config
from jaxrl.config.errors import RunError
from jaxrl.config.training_stages import TrainingStage
from jaxrl.training.coordination import Coordinator
from jaxrl.training.plan import TrainingPlan
from jaxrl.training.progress import Progress

STAGE = "stage"  # a reason to stop that does not end the run


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
        return self.plan.stage(self.index)

    def due(self, iteration: int, saved_at: float = math.inf, logged_at: float = math.inf) -> Due:
        """The work that is due at the end of `iteration`.

        Args:
          iteration: counted from 1 on.
          saved_at: `wall_seconds` at the latest save.
          logged_at: `trained_seconds` at the latest row.
        """
        config = self.config
        is_late = self.coordinator.trained_seconds - logged_at >= config.log_seconds
        every = config.checkpoint.every_seconds
        by_time = every > 0 and self.coordinator.wall_seconds - saved_at >= every
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
        if stop.seconds is not None and self.coordinator.trained_seconds >= stop.seconds:
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
        seconds = self.coordinator.trained_seconds - progress.stage_seconds
        return "seconds" if stage.seconds is not None and seconds >= stage.seconds else None

    def out_of_time(self, compiled: float) -> RunError:
        """The error to raise if `stop.wall_seconds` has left no time for a step; `compiled` is in seconds."""
        return RunError(
            f"no step was made: of `stop.wall_seconds` (={self.config.stop.wall_seconds:g}), "
            f"{self.coordinator.wall_seconds:.1f} s had passed, {compiled:.1f} s of them compiling, "
            "and the rest is needed to end the run: allow more"
        )

    def _is_last_moment(self, limit: float) -> bool:
        """True if training must stop for the process to end by `limit`; not before half of it."""
        left = limit - self.coordinator.wall_seconds
        return left <= min(self.coordinator.closing_seconds, limit / 2)


def _is_multiple(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0
