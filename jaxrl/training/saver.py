"""Saves the state of a run with its progress."""

from __future__ import annotations

import dataclasses

from jaxrl.metrics.tracing import host_phase
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.dispatch_queue import DispatchQueue
from jaxrl.training.progress import Progress
from jaxrl.training.run_state import RunState


class StateSaver:
    """Saves a run as it is now.

    Attributes:
      saved_at: `Coordinator.wall_seconds` at the latest save, or at the start of training.
    """

    def __init__(
        self, run: RunState, checkpoints: RunCheckpoints, queue: DispatchQueue, assembly: Assembly
    ) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._queue = queue
        self._clock = assembly.clock
        self._coordinator = assembly.coordinator
        self.saved_at = 0.0

    def begin(self) -> None:
        """Counts the time to the next save from now on."""
        self.saved_at = self._coordinator.wall_seconds

    def save(self, last: bool = False) -> bool:
        """Saves the state, unless it is saved or there is no folder; returns True if it did.

        Args:
          last: waits until the state is written, and raises if that fails; otherwise a failure is a warning.

        Raises:
          SaveError: the last state could not be saved.
        """
        self.begin()
        save = self._checkpoints.save_last if last else self._checkpoints.save
        with self._clock.measure("save"), host_phase("checkpoint"):
            saved = save(self._run.state, self.progress())
        if saved or not self._checkpoints.has_folder:
            self._run.record_save()
        elif last:
            self.save_score()
        return saved

    def save_score(self) -> None:
        """Saves how good the state is, if it was evaluated after it was saved; a failure is a warning.

        All else stays as it was saved: a process that resumes from there evaluates again, and then continues
        alike, whatever callbacks or other members have changed since.
        """
        evaluation = self._run.progress.evaluation_of_state
        if evaluation is not None:
            self._checkpoints.save_score(self._run.progress, evaluation)
            self._run.record_save()

    def progress(self) -> Progress:
        """The progress to store with the state."""
        return dataclasses.replace(
            self._run.progress.after_save(),
            seconds=self._clock.total(),
            trained_seconds=self._clock.trained_seconds(),
            interval=self._queue.interval,
        )
