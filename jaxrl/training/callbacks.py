"""Functions of a user's own that a trainer calls while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxrl.evaluation.result import Result

if TYPE_CHECKING:
    from jaxrl.training.trainer import Trainer


@dataclass(frozen=True)
class Callbacks:
    """Called by `Trainer.fit`, with the trainer first, while no iteration runs.

    They may read the trainer's state, evaluate, save, and set hyperparameters for the next iteration. An
    exception ends the run. With several processes each calls its own, and all must do the same.

    Attributes:
      on_iteration: takes the metrics of the iteration. Iterations then run one by one, and the host waits for
        each: small ones take longer. The numbers stay the same.
      on_evaluation: takes the result.
      on_checkpoint: takes the step of a checkpoint that is being written (`folder.checkpoints.wait()` waits
        for it); the last one is complete.
    """

    on_iteration: Callable[[Trainer, Mapping[str, float]], object] | None = None
    on_evaluation: Callable[[Trainer, Result], object] | None = None
    on_checkpoint: Callable[[Trainer, int], object] | None = None
