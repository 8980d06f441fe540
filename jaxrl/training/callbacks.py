"""Functions of a user that a trainer calls while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from jaxrl.config import ConfigError
from jaxrl.evaluation.result import Result

# The trainer that is passed to a callback. Its class imports this module.
T = TypeVar("T")
P = ParamSpec("P")


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
      on_evaluation: takes the result; with `nonfinite="skip"` its returns may be NaN or infinite.
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

    def __post_init__(self) -> None:
        for name, callback in vars(self).items():
            if callback is not None and not callable(callback):
                raise ConfigError(f"`{name}` (={callback!r}) must be a function, or None")


def notify(callback: Callable[P, object] | None, *arguments: P.args, **named: P.kwargs) -> None:
    """Calls a callback with its arguments, the trainer first, if there is one."""
    if callback is not None:
        callback(*arguments, **named)
