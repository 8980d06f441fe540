"""How far a run is: what it must remember beside the arrays of its state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.evaluation.result import Result
from jaxrl.metrics import reduction
from jaxrl.metrics.reduction import Interval
from jaxrl.runs.checkpoint import record


def _is_evaluation(x: Any) -> bool:
    names = {field.name for field in dataclasses.fields(Result)}
    return x is None or (record.is_object(x) and x.keys() == names and all(map(_is_real, x.values())))


def _is_real(x: Any) -> bool:
    """A number; a diverged policy may have a return of NaN."""
    return isinstance(x, float) or record.is_number(x)


_RULES: Mapping[str, Callable[[Any], bool]] = {
    "config": record.is_object,
    "iteration": record.is_count,
    "seconds": lambda x: record.is_number(x) and x >= 0,
    "evaluation": _is_evaluation,
    "evaluated_at": lambda x: x == -1 or record.is_count(x),
    "interval": lambda x: record.is_object(x) and all(map(_is_real, x.values())),
}


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

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Raises ValueError, naming the field, unless `data` is a configuration and what `to_json` gave."""
        record.require(data, _RULES)

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
