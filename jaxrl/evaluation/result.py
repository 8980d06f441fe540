"""Results of evaluations, their modes (greedy or sampled actions), and the mode that decides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.experience.collector import report_metric
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS, Episodes
from jaxrl.experience.statistics import SUCCESS, EpisodeReports

MODES = (GREEDY, SAMPLED)
CONFIDENCE = 0.95
# Evaluations over which the modes are compared: single ones differ by chance.
LAST_EVALUATIONS = 3

# Mean returns of the last evaluations, oldest first, by mode.
RecentReturns = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Result:
    """The statistics of N episodes of one mode; returns are raw, lengths in steps.

    `low` and `high` bound the mean return with 95% confidence (normal approximation, cut off at the lowest
    and the highest return, between which every mean lies); `unfinished` counts episodes that the
    safety limit of environments without a time limit cut off, with the return of the steps played; `mode`
    is greedy or sampled.
    """

    episodes: int
    mean: float
    std: float
    low: float
    high: float
    minimum: float
    maximum: float
    mean_length: float
    std_length: float
    unfinished: int
    mode: str = GREEDY

    @property
    def cut(self) -> str:
        """A sentence on the episodes that were cut off; "" if none was."""
        return cut(self.unfinished, self.episodes)

    @classmethod
    def of(cls, episodes: Episodes, mode: str = GREEDY) -> Result:
        """Summarises host copies of the episodes."""
        played = np.asarray(episodes.played)
        returns = np.asarray(episodes.episode_return, np.float64)[played]
        lengths = np.asarray(episodes.length)[played]
        mean = float(returns.mean())
        std = float(returns.std(ddof=1)) if returns.size > 1 else 0.0
        half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * std / math.sqrt(returns.size)
        return cls(
            episodes=int(returns.size),
            mean=mean,
            std=std,
            low=max(mean - half, float(returns.min())),
            high=min(mean + half, float(returns.max())),
            minimum=float(returns.min()),
            maximum=float(returns.max()),
            mean_length=float(lengths.mean()),
            std_length=float(lengths.std(ddof=1)) if lengths.size > 1 else 0.0,
            unfinished=int((~np.asarray(episodes.finished)[played]).sum()),
            mode=mode,
        )


def cut(unfinished: float, episodes: float) -> str:
    """`2 of 4 episodes were cut off: ...`; "" if none was."""
    if not unfinished:
        return ""
    limit = f"after {DEFAULT_MAX_EPISODE_STEPS:,} steps: the environment has no time limit"
    return f"{unfinished:.0f} of {episodes:.0f} episodes were cut off {limit}"


def report_values(reports: EpisodeReports, episodes: Episodes) -> dict[str, float]:
    """Means over the episodes in which the environment reported a value: `success_rate`, `env/NAME`."""
    said = {label: values[~np.isnan(values)] for label, values in episodes.values_by_label(reports).items()}
    return {
        label if label == SUCCESS else report_metric(label): float(values.mean())
        for label, values in said.items()
        if values.size
    }


def report_lines(values: Mapping[str, float]) -> Iterator[str]:
    """Lines for people about what `report_values` returns, successes first."""
    if SUCCESS in values:
        yield f"success     {values[SUCCESS]:.1%} of the episodes"
    for name, value in values.items():
        if name != SUCCESS:
            yield f"{name:<11} {value:.4g}"


def samples(episodes: Episodes) -> dict[str, Any]:
    """Returns and lengths of the single episodes, from host copies; for histograms."""
    played = np.asarray(episodes.played)
    return {
        "returns": np.asarray(episodes.episode_return)[played],
        "lengths": np.asarray(episodes.length)[played],
    }


def modes_of(agent: Agent, wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted modes that an agent has: without samples the greedy one alone; ConfigError if none."""
    found = tuple(mode for mode in wanted if agent.samples or mode != SAMPLED)
    if not found:
        agent.require_samples()
    return found


def add_means(recent: RecentReturns, means: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    """The recent returns after one more evaluation, whose mean returns are `means`, by mode."""
    return {mode: (*recent.get(mode, ()), mean)[-LAST_EVALUATIONS:] for mode, mean in means.items()}


def deciding_mode(recent: RecentReturns) -> str:
    """The mode with the higher mean return over the last evaluations; of equal ones the first.

    A return that is not finite never decides against one that is.
    """

    def mean(mode: str) -> float:
        found = sum(recent[mode]) / len(recent[mode])
        return found if math.isfinite(found) else -math.inf

    return max(recent, key=mean)


def mode_name(sample: bool) -> str:
    """The mode that samples actions, or the greedy one."""
    return SAMPLED if sample else GREEDY
