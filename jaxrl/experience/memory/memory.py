"""The memory of a learner."""

from __future__ import annotations

import abc
from typing import Any

from jaxrl.types import Array, PyTree, Trajectory


class Memory(abc.ABC):
    """Takes rollouts and gives experience to learn from; pure functions on the device.

    An iteration adds one rollout, then draws and learns as often as the algorithm says. Without rollouts
    (`AlgorithmConfig.collects`) nothing is added, and `latest` and the example are None. The state is a
    dataclass of the memory's own, part of every checkpoint: a field with a row for each environment is marked
    `Sharded`, and rows that are too many to be copied are marked `Bulk` (both in `jaxrl.types`).

    Attributes:
      state_type: the class of its state; None without a state.
      checkpointed: False keeps the state out of checkpoints: after a resume and after a rollback the memory
        is empty. A memory may set it for the class, or take it as an argument.
      refills: `init` gives the memory in full, as of files that are read again; then nobody is told that a
        memory which is not checkpointed was lost.
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
        """The experience for one call of `Algorithm.learn`.

        Args:
          state: with `latest` in it.
          latest: the rollout just collected.
          key: equal on all devices.
        """

    @abc.abstractmethod
    def feedback(self, state: PyTree, feedback: PyTree) -> PyTree:
        """With what learning from the latest draw has told, such as new priorities."""
