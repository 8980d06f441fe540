"""The results of stages as numbers by name, and gates: conditions on them that end a pipeline."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config import flatten, text
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.sections import COMPARISONS
from jaxrl.pipeline.digests import StagePlaces
from jaxrl.runs.records import stored_object, suite_rows

# Of a suite, what a gate or a table may ask of each category.
SUITE_COLUMNS = ("episodes", "success_rate", "return_mean", "length", "cost", "efficiency", "safety")
LEVEL = 0.05  # of the one-sided test against the deployed model
_AGAINST = "not worse than deployed"
_THRESHOLD = re.compile(r"([a-z]+)\.(.+?)\s*(>=|<=|>|<)\s*([-+.\deE]+)")
_DEPLOYED = re.compile(rf"([a-z]+)\.(.+?)\s+{_AGAINST}")

Results = Mapping[str, float]


@dataclass(frozen=True)
class GateOutcome:
    """A gate that was looked at; `value` is what was found, in words."""

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
        """Compares; a result of the stage that is not there, or not finite, fails."""
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


def results_of(stage: str, folder: str) -> dict[str, float]:
    """The results of a stage in the folder of a pipeline; empty if it has none.

    `train` has the numbers of summary.json, `search` has its best trial's, and `evaluate` has numbers of its
    episodes, and of its suites as `SUITE.NAME` and `SUITE.CATEGORY.NAME`: in the mode of these episodes, if
    they were played in it.
    """
    places = StagePlaces(folder)
    if stage == "search":
        return _search(stored_object(f"{places.study}/result.json"))
    if stage in ("train", "pretrain"):
        return dict(_numbers(stored_object(f"{places.run(stage)}/summary.json")))
    if stage == "evaluate":
        episodes = stored_object(f"{folder}/evaluate/episodes.json")
        found = dict(_numbers(episodes))
        for suite in suites(folder):
            found |= _suite(suite, episodes.get("mode"))
        return found
    return {}


def suites(folder: str) -> list[dict[str, Any]]:
    """The results of the suites that were played, in order."""
    files = sorted(
        Path(folder, "evaluate").glob("suite-*.json"), key=lambda file: (len(file.name), file.name)
    )
    return [found for file in files if (found := stored_object(file))]


def _suite(suite: Mapping[str, Any], preferred: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    # Of other modes than the preferred one the first counts.
    for _, category, row in sorted(suite_rows(suite), key=lambda each: each[0] != preferred):
        prefix = str(suite.get("suite")) if category == "all" else f"{suite.get('suite')}.{category}"
        for column in SUITE_COLUMNS:
            if _is_number(row.get(column)):
                found.setdefault(f"{prefix}.{column}", float(row[column]))
    return found


def _search(result: Mapping[str, Any]) -> dict[str, float]:
    best = result.get("best")
    verified = result.get("verified")
    found = {}
    if isinstance(best, Mapping) and _is_number(best.get("searched")):
        found["searched"] = float(best["searched"])
    if isinstance(verified, list) and verified and _is_number(verified[0].get("verified")):
        found["verified"] = float(verified[0]["verified"])
    return found


def _numbers(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in flatten(data).items():
        if _is_number(value):
            yield name, float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def deployed_evaluation(model: Path) -> dict[str, float] | None:
    """The evaluation of the deployed model; None if nothing is deployed.

    In a registry that is the version in production, else the latest; an exported model has it beside it.
    """
    for place in (model / "production", model / "latest", model):
        found = dict(_numbers(stored_object(place / "evaluation.json")))
        if found.get("episodes"):
            return found
    return None
