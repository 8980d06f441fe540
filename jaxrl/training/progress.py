"""The progress of a run: everything to remember beside the arrays of its state."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.evaluation.result import RecentReturns, Result
from jaxrl.metrics import reduction
from jaxrl.metrics.reduction import Interval
from jaxrl.runs.checkpoint import checkpoint_record

_MODE = "mode"  # of an evaluation; those from before there were several lack it


def _is_evaluation(x: Any) -> bool:
    names = {field.name for field in dataclasses.fields(Result)} - {_MODE}
    if x is None or not checkpoint_record.is_object(x):
        return x is None
    numbers = {name: value for name, value in x.items() if name != _MODE}
    is_known = x.get(_MODE, GREEDY) in (GREEDY, SAMPLED)
    return is_known and numbers.keys() == names and all(map(_is_real, numbers.values()))


def _are_recent(x: Any) -> bool:
    return checkpoint_record.is_object(x) and all(
        mode in (GREEDY, SAMPLED) and isinstance(values, list) and values and all(map(_is_real, values))
        for mode, values in x.items()
    )


def _is_real(x: Any) -> bool:
    """A number; a diverged policy may have a return of NaN."""
    return isinstance(x, float) or checkpoint_record.is_number(x)


def _is_duration(x: Any) -> bool:
    return checkpoint_record.is_number(x) and x >= 0


def _is_iteration(x: Any) -> bool:
    return x == -1 or checkpoint_record.is_count(x)


_RULES: Mapping[str, Callable[[Any], bool]] = {
    "config": checkpoint_record.is_object,
    "iteration": checkpoint_record.is_count,
    "seconds": _is_duration,
    "evaluation": _is_evaluation,
    "evaluated_at": _is_iteration,
    "recent_returns": _are_recent,
    "owes_evaluation": lambda x: isinstance(x, bool),
    "trained_seconds": _is_duration,
    "best_return": lambda x: x is None or checkpoint_record.is_number(x),
    "best_at": _is_iteration,
    "forgotten_at": checkpoint_record.is_count,
    "stage": checkpoint_record.is_count,
    "stage_iteration": checkpoint_record.is_count,
    "stage_seconds": _is_duration,
    "metadata": checkpoint_record.is_object,
    # It is shown as it is.
    "jax": lambda x: isinstance(x, str) and re.fullmatch(r"[0-9A-Za-z.+_-]{0,40}", x) is not None,
    "interval": lambda x: checkpoint_record.is_object(x) and all(map(_is_real, x.values())),
}
# What checkpoints lack that were written before it was stored.
_DEFAULTS: Mapping[str, Any] = {
    "recent_returns": {},
    "owes_evaluation": False,
    "trained_seconds": 0.0,
    "best_return": None,
    "best_at": -1,
    "forgotten_at": 0,
    "stage": 0,
    "stage_iteration": 0,
    "stage_seconds": 0.0,
    "metadata": {},
    "jax": "",
}


@dataclasses.dataclass(frozen=True)
class Progress:
    """Saved with every checkpoint.

    Attributes:
      interval: metrics of the log interval that is open.
      iteration: rollouts finished.
      seconds: since the start of the run, those before resumes included; as of the last save.
      trained_seconds: those that `stop.seconds` counts; as of the last save.
      evaluation: the latest, in the mode that decides, or None.
      evaluated_at: the iteration of that.
      recent_returns: mean returns of the last evaluations, the latest last, by mode.
      owes_evaluation: true if an evaluation of this state was due, and a signal or an error came first.
      best_return: the highest mean return of an evaluation whose state was saved, or None.
      best_at: the iteration of that.
      forgotten_at: the iteration up to which evaluations do not apply to the present training.
      stage: of `stages`, from 0 on.
      stage_iteration, stage_seconds: `iteration` and `trained_seconds` with which it began.
    """

    interval: Interval
    iteration: int = 0
    seconds: float = 0.0
    trained_seconds: float = 0.0
    evaluation: Result | None = None
    evaluated_at: int = -1
    recent_returns: RecentReturns = dataclasses.field(default_factory=dict)
    owes_evaluation: bool = False
    best_return: float | None = None
    best_at: int = -1
    forgotten_at: int = 0
    stage: int = 0
    stage_iteration: int = 0
    stage_seconds: float = 0.0

    @property
    def is_evaluated(self) -> bool:
        """True if this very state was evaluated, even if the result was not finite and is not kept."""
        return self.evaluated_at == self.iteration

    @property
    def evaluation_of_state(self) -> Result | None:
        """The evaluation of the very state that this describes."""
        return self.evaluation if self.is_evaluated else None

    @property
    def latest_returns(self) -> dict[str, float]:
        """The mean return of the latest evaluation, by mode."""
        return {mode: values[-1] for mode, values in self.recent_returns.items()}

    def has_reached(self, target: float, every_mode: bool) -> bool:
        """True if the latest evaluation came to a mean return, in the mode that decides or in every one."""
        if self.evaluation is None:
            return False
        every = self.latest_returns.values() if every_mode else ()
        return min(every, default=self.evaluation.mean) >= target

    @property
    def is_best(self) -> bool:
        """True if this state was evaluated, and is better than every state that was saved."""
        found = self.evaluation_of_state
        if found is None or not math.isfinite(found.mean):
            return False
        return self.best_return is None or found.mean > self.best_return

    def after_save(self) -> Progress:
        """As it is once this state is saved: of equally good states the latest is the best."""
        found = self.evaluation_of_state
        if found is None or not (self.is_best or found.mean == self.best_return):
            return self
        return dataclasses.replace(self, best_return=found.mean, best_at=self.iteration)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {
            "evaluation": dataclasses.asdict(self.evaluation) if self.evaluation else None,
            "recent_returns": {mode: list(values) for mode, values in self.recent_returns.items()},
            "interval": reduction.to_json(self.interval),
        }

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Raises ValueError, naming the field, unless `data` is a configuration and what `to_json` gave."""
        checkpoint_record.require({**_DEFAULTS, **data}, _RULES)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], empty: Interval) -> Progress:
        """Inverse of `to_json`; `empty` says which metrics there are. The interval is on the host."""
        data = {**_DEFAULTS, **data}
        values = {f.name: data[f.name] for f in dataclasses.fields(cls)} | {
            "interval": reduction.from_json(data["interval"], empty),
            "iteration": int(data["iteration"]),
            "evaluation": Result(**data["evaluation"]) if data["evaluation"] else None,
            "recent_returns": {mode: tuple(values) for mode, values in data["recent_returns"].items()},
        }
        return cls(**values)
