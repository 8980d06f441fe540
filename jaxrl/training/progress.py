"""How far a run is: what it must remember beside the arrays of its state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl.evaluation.result import Result
from jaxrl.metrics import reduction
from jaxrl.metrics.reduction import Interval


@dataclasses.dataclass(frozen=True)
class Progress:
    """Saved with every checkpoint.

    Attributes:
      interval: metrics of the log interval that is open.
      iteration: rollouts finished.
      seconds: since the start of the run, those before resumes included; as of the last save.
      evaluation: the latest, or None.
      evaluated_at: the iteration of that.
    """

    interval: Interval
    iteration: int = 0
    seconds: float = 0.0
    evaluation: Result | None = None
    evaluated_at: int = -1

    @property
    def evaluation_of_state(self) -> Result | None:
        """The evaluation of the very state that this describes."""
        return self.evaluation if self.evaluated_at == self.iteration else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "iteration": self.iteration,
            "seconds": self.seconds,
            "evaluation": dataclasses.asdict(self.evaluation) if self.evaluation else None,
            "evaluated_at": self.evaluated_at,
            "interval": reduction.to_json(self.interval),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], empty: Interval) -> Progress:
        """Inverse of `to_json`; `empty` says which metrics there are. The interval is on the host."""
        return cls(
            interval=reduction.from_json(data["interval"], empty),
            iteration=int(data["iteration"]),
            seconds=data["seconds"],
            evaluation=Result(**data["evaluation"]) if data["evaluation"] else None,
            evaluated_at=data["evaluated_at"],
        )
