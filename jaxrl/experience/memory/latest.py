"""The memory of on-policy learners: they learn from the latest rollout, once."""

from __future__ import annotations

from jaxrl.experience.memory.memory import Memory
from jaxrl.types import Array, PyTree, Trajectory


class Latest(Memory):
    """Holds nothing: the latest rollout is the experience."""

    state_type = None

    def init(self, example: Trajectory | None) -> None:
        return None

    def add(self, state: None, trajectory: Trajectory) -> None:
        return None

    def draw(self, state: None, latest: Trajectory | None, key: Array) -> Trajectory | None:
        return latest

    def feedback(self, state: None, feedback: PyTree) -> None:
        return None
