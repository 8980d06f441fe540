"""Memories between collecting and learning: the latest rollout, replay, demonstrations."""

from __future__ import annotations

from typing import Any

from jaxrl.algorithms.demonstrations import AggregatePlan, DemonstrationPlan
from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.experience.memory.memory import Latest, Memory

__all__ = ["Latest", "Memory", "build"]

_MEMORIES: dict[str, type[Memory]] = {"latest": Latest}


def build(memory: Any) -> Memory:
    """The memory that an algorithm asks for, by name or plan; one of its own is taken as it is."""
    if isinstance(memory, ReplayPlan):
        from jaxrl.experience.replay import Replay, SequenceReplay  # they derive from `Memory`

        return Replay(memory) if memory.sequences is None else SequenceReplay(memory)
    if isinstance(memory, DemonstrationPlan):
        from jaxrl.experience.demonstrations import Demonstrations

        return Demonstrations(memory)
    if isinstance(memory, AggregatePlan):
        from jaxrl.experience.demonstrations import Aggregate

        return Aggregate(memory)
    found = _MEMORIES[memory]() if isinstance(memory, str) else memory
    assert isinstance(found, Memory), memory
    return found
