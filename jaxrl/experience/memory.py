"""Memories between collecting and learning: the latest rollout, replay, demonstrations."""

from __future__ import annotations

import abc
from typing import Any

from jaxrl.algorithms.demonstrations import AggregatePlan, DemonstrationPlan
from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.types import Array, PyTree, Trajectory


class Memory(abc.ABC):
    """Takes rollouts and gives experience to learn from; pure functions on the device.

    An iteration adds one rollout, then samples and learns as often as the algorithm says. Without rollouts
    (`AlgorithmConfig.collects`) nothing is added, and `latest` and the example are None. The state is a
    dataclass of the memory's own, part of every checkpoint: a field with a row for each environment is marked
    `Sharded`, and rows that are too many to be copied are marked `Bulk` (both in `jaxrl.types`).

    Attributes:
      state_type: the class of its state; None without a state.
      checkpointed: False keeps the state out of checkpoints: after a resume and after a rollback the memory
        is empty. A memory may set it for the class, or take it as an argument.
      refills: `init` gives the full memory, such as from files that are read again; then no message says that
        a memory without checkpoints was lost.
    """

    state_type: type[Any] | None
    checkpointed: bool = True
    refills: bool = False

    @abc.abstractmethod
    def init(self, example: Trajectory | None) -> PyTree:
        """The empty memory of one device, for trajectories with the shapes of `example`."""

    @abc.abstractmethod
    def add(self, state: PyTree, trajectory: Trajectory) -> PyTree:
        """With one more rollout of this device."""

    @abc.abstractmethod
    def draw(self, state: PyTree, latest: Trajectory | None, key: Array) -> Any:
        """The experience for one call of `Algorithm.learn`."""

    def feedback(self, state: PyTree, feedback: PyTree) -> PyTree:
        """The state with feedback on the latest draw, such as new priorities; may be overridden."""
        return state


class Latest(Memory):
    """Holds nothing, for on-policy learners: they learn from the latest rollout, once."""

    state_type = None

    def init(self, example: Trajectory | None) -> None:
        return None

    def add(self, state: None, trajectory: Trajectory) -> None:
        return None

    def draw(self, state: None, latest: Trajectory | None, key: Array) -> Trajectory | None:
        return latest


def build(memory: Any) -> Memory:
    """The memory that an algorithm asks for, by name or plan; a custom one is taken as it is."""
    if isinstance(memory, ReplayPlan):
        from jaxrl.experience.replay import Replay, SequenceReplay  # they derive from `Memory`

        return Replay(memory) if memory.sequences is None else SequenceReplay(memory)
    if isinstance(memory, DemonstrationPlan):
        from jaxrl.experience.demonstrations import Demonstrations

        return Demonstrations(memory)
    if isinstance(memory, AggregatePlan):
        from jaxrl.experience.demonstrations import Aggregate

        return Aggregate(memory)
    found = Latest() if memory == "latest" else memory
    assert isinstance(found, Memory), memory
    return found
