"""Functions of a user that a trainer calls while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jaxrl.evaluation.result import Result

# The trainer that is passed to a callback. Its class imports this module.
T = TypeVar("T")


@dataclass(frozen=True)
class Callbacks(Generic[T]):
    """Called by `Trainer.fit`, with the trainer first, while no iteration runs.

    They may read the trainer's state, evaluate, save, and set hyperparameters for the next iteration. An
    exception ends the run. With several processes each calls its own, and all must do the same.

    Attributes:
      on_start: takes nothing else; `fit` has its state, and has not trained.
      on_row: takes the metrics of a log interval, as they were written; iterations after it may be under way.
      on_iteration: takes the metrics of the iteration. Iterations then run one by one, and the host waits for
        each: small ones take longer. The numbers stay the same.
      on_evaluation: takes the result.
      on_end: takes the summary of a run that was not ended by an exception.
      on_checkpoint: takes the step of a checkpoint that is being written (`folder.checkpoints.wait()` waits
        for it); the last one is complete.
    """

    on_iteration: Callable[[T, Mapping[str, float]], object] | None = None
    on_evaluation: Callable[[T, Result], object] | None = None
    on_checkpoint: Callable[[T, int], object] | None = None
    on_row: Callable[[T, Mapping[str, float]], object] | None = None
    on_start: Callable[[T], object] | None = None
    on_end: Callable[[T, Mapping[str, Any]], object] | None = None


@dataclass(frozen=True)
class Notifier(Generic[T]):
    """Calls the callbacks that there are, with their trainer."""

    trainer: T
    callbacks: Callbacks[T]

    def start(self) -> None:
        """Says that `fit` begins."""
        if self.callbacks.on_start:
            self.callbacks.on_start(self.trainer)

    def end(self, summary: Mapping[str, Any]) -> None:
        """Passes on the summary of the run."""
        if self.callbacks.on_end:
            self.callbacks.on_end(self.trainer, summary)

    def row(self, metrics: Mapping[str, float]) -> None:
        """Passes on the metrics of a log interval."""
        if self.callbacks.on_row:
            self.callbacks.on_row(self.trainer, metrics)

    def iteration(self, metrics: Mapping[str, float]) -> None:
        """Passes on the metrics of an iteration."""
        if self.callbacks.on_iteration:
            self.callbacks.on_iteration(self.trainer, metrics)

    def evaluation(self, result: Result) -> None:
        """Passes on the result of an evaluation."""
        if self.callbacks.on_evaluation:
            self.callbacks.on_evaluation(self.trainer, result)

    def checkpoint(self, step: int) -> None:
        """Passes on the step of a checkpoint."""
        if self.callbacks.on_checkpoint:
            self.callbacks.on_checkpoint(self.trainer, step)
