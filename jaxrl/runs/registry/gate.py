"""Conditions that an evaluation must meet before a model is deployed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from jaxrl.config.errors import ConfigError, RunError, did_you_mean
from jaxrl.config.sections import COMPARISONS

_CONDITION = re.compile(r"\s*([\w./-]+)\s*(>=|<=|>|<)\s*([-+\w.]+)\s*")


class GateClosed(RunError):
    """A condition does not hold, so the steps that depend on it are not done. Its message is one line."""

    exit_code = 3


@dataclass(frozen=True)
class Gate:
    """One condition, such as `success_rate>=0.9`."""

    metric: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str, flag: str = "--gate") -> tuple[Gate, ...]:
        """Reads conditions that commas separate; ConfigError if one of them is no condition."""
        gates = []
        for part in text.split(","):
            match = _CONDITION.fullmatch(part)
            try:
                bound = float(match[3]) if match else math.nan
            except ValueError:
                bound = math.nan
            if match is None or not math.isfinite(bound):
                raise ConfigError(f"`{flag}` (={text!r}) must be METRIC>=NUMBER, or with <=, > or <")
            gates.append(cls(match[1], match[2], bound))
        return tuple(gates)

    def require(self, metrics: Mapping[str, float]) -> None:
        """Returns if the condition holds.

        Raises:
          ConfigError: the evaluation has no such metric.
          GateClosed: the condition does not hold; a value that is not finite holds no condition.
        """
        if self.metric not in metrics:
            raise ConfigError(
                f"`--gate` (={self}) names a metric that the evaluation has not"
                f"{did_you_mean(self.metric, metrics)}"
            )
        value = metrics[self.metric]
        if not math.isfinite(value) or not COMPARISONS[self.comparison](value, self.bound):
            raise GateClosed(f"the gate {self} is closed: {self.metric} is {value:g}; nothing was deployed")

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.bound:g}"
