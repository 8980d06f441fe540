"""The modes of an evaluation, greedy or sampled actions, and which of the two decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jaxrl.algorithms import Agent
from jaxrl.config.sections import GREEDY, SAMPLED

MODES = (GREEDY, SAMPLED)

# Evaluations over which the modes are compared: single ones differ by chance.
LAST_EVALUATIONS = 3

# Mean returns of the last evaluations, oldest first, by mode.
RecentReturns = Mapping[str, Sequence[float]]


def modes_of(agent: Agent, wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted modes that an agent has: one that samples nothing has only the greedy one.

    Raises:
      ConfigError: it has none of them.
    """
    found = tuple(mode for mode in wanted if agent.samples or mode != SAMPLED)
    if not found:
        agent.require_samples()
    return found


def add(recent: RecentReturns, means: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
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
