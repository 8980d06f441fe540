"""Gates: conditions on the results of a stage that end a pipeline if they do not hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from jaxrl.config import text
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.sections import COMPARISONS

LEVEL = 0.05  # of the one-sided test against the deployed model
_AGAINST = "not worse than deployed"
_THRESHOLD = re.compile(r"([a-z]+)\.(.+?)\s*(>=|<=|>|<)\s*([-+.\deE]+)")
_DEPLOYED = re.compile(rf"([a-z]+)\.(.+?)\s+{_AGAINST}")

Results = Mapping[str, float]


@dataclass(frozen=True)
class GateOutcome:
    """A gate that was looked at.

    Attributes:
      value: the value found, in words.
    """

    condition: str
    value: str
    passed: bool

    @property
    def outcome(self) -> str:
        return "passed" if self.passed else "failed"

    def __str__(self) -> str:
        return f"gate `{self.condition}` {self.outcome}: {self.value}"


@dataclass(frozen=True)
class StageGate:
    """A condition on a result of a stage.

    Attributes:
      stage: whose result it is; it is looked at when that stage is done.
      comparison: ">=", "<=", ">" or "<"; "" for a test against the deployed model.
      threshold: the number that it is compared with.
    """

    text: str
    stage: str
    metric: str
    comparison: str = ""
    threshold: float = 0.0

    @classmethod
    def read(cls, line: str) -> StageGate:
        """Reads `STAGE.RESULT >= NUMBER`, or `STAGE.RESULT not worse than deployed`.

        Raises:
          ConfigError: it is neither.
        """
        line = " ".join(line.split())
        if match := _DEPLOYED.fullmatch(line):
            if match[1] != "evaluate" or match[2] not in ("success_rate", "mean"):
                raise ConfigError(
                    f"`gates`: {line!r}: only evaluate.success_rate and evaluate.mean are tested against the "
                    "deployed model"
                )
            return cls(line, match[1], match[2])
        match = _THRESHOLD.fullmatch(line)
        try:
            threshold = float(match[4]) if match else math.nan
        except ValueError:
            threshold = math.nan
        if match is None or not math.isfinite(threshold):
            raise ConfigError(
                f"`gates`: {line!r} must be `STAGE.RESULT >= NUMBER` (or <=, >, <), or "
                f"`evaluate.success_rate {_AGAINST}`"
            )
        return cls(line, match[1], match[2], match[3], threshold)

    def check(self, results: Results, deployed: Results | None) -> GateOutcome:
        """Compares; a result that is not there, or not finite, fails.

        Args:
          results: of the stage, by name.
          deployed: the results of the deployed model; None if there is none.
        """
        if self.metric not in results:
            hint = did_you_mean(self.metric, results)
            return GateOutcome(self.text, f"{self.stage} has no such result{hint}", False)
        if not self.comparison:
            return self._against(results, deployed)
        value = results[self.metric]
        holds = math.isfinite(value) and COMPARISONS[self.comparison](value, self.threshold)
        return GateOutcome(self.text, text.number(value), holds)

    def _against(self, results: Results, deployed: Results | None) -> GateOutcome:
        if deployed is None or self.metric not in deployed:
            found = text.number(results[self.metric])
            return GateOutcome(self.text, f"{found}, and nothing is deployed to compare with", True)
        z = _statistic(self.metric, results, deployed)
        p = 0.5 * math.erfc(-z / math.sqrt(2))  # P(Z <= z): small if the new one is worse
        said = f"{text.number(results[self.metric])} against {text.number(deployed[self.metric])}, p {p:.3f}"
        return GateOutcome(self.text, said, p >= LEVEL)


def _statistic(metric: str, new: Results, old: Results) -> float:
    """The difference of two means over its standard error, positive if `new` is better.

    Of success rates the pooled form for two proportions, of returns Welch's; both taken as normal, for which
    some thirty episodes of each are enough.
    """
    n = new["episodes"]
    m = old["episodes"]
    difference = new[metric] - old[metric]
    if metric == "success_rate":
        pooled = (new[metric] * n + old[metric] * m) / (n + m)
        variance = pooled * (1 - pooled) * (1 / n + 1 / m)
    else:
        variance = new["std"] ** 2 / n + old["std"] ** 2 / m
    if variance <= 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(variance)
