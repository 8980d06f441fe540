"""What an algorithm is: pure functions from a state and a trajectory to the next state.

A new algorithm is a section of the configuration (`jaxrl/config/`), a package beside `ppo/` with a class
that implements `Algorithm`, and its line in `jaxrl/algorithms/registry.py`. The trainer, checkpoints,
evaluation and writers know nothing else of it.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxrl.config import Config
from jaxrl.metrics.reduction import Metric, Metrics
from jaxrl.types import Array, LearnerState, PyTree, Trajectory


class Algorithm(abc.ABC):
    """One device's share of learning. Every method is pure: jit, shard_map and vmap (over members) apply.

    Attributes:
      state_type: the class of its learner state, whose fields say how they lie on devices.
      highlights: (metric, label) of what is worth a place on the display of a run.
      updates_metric: the name of the metric that counts gradient steps since the start of the run.
    """

    state_type: ClassVar[type[LearnerState]]
    highlights: ClassVar[tuple[tuple[str, str], ...]]
    updates_metric: ClassVar[str]

    @property
    @abc.abstractmethod
    def metrics(self) -> Mapping[str, type[Metric]]:
        """The metrics of `update` by name, each with its reduction."""

    @property
    @abc.abstractmethod
    def passes_per_step(self) -> float:
        """How often `update` learns from each environment step: a forward and a backward pass each."""

    @classmethod
    @abc.abstractmethod
    def hyperparameters(cls, config: Config) -> PyTree:
        """The numeric hyperparameters of a configuration, float32 scalars, for `init`."""

    @abc.abstractmethod
    def init(self, key: Array, hyperparams: PyTree) -> LearnerState:
        """The state before the first update: parameters, optimiser, statistics, counters."""

    @abc.abstractmethod
    def update(self, learner: Any, trajectory: Trajectory, key: Array) -> tuple[LearnerState, Metrics]:
        """Everything that is learnt from one trajectory.

        Args:
          learner: from `init` or `update`; replicated, except for fields marked `Sharded`.
          trajectory: of this device's environments.
          key: the same on all devices.

        Returns:
          (learner, metrics), the metrics equal on all devices.
        """

    @abc.abstractmethod
    def restart_episodes(self, learner: Any) -> LearnerState:
        """Forgets what it remembers of episodes in progress, whose environments have been started again."""

    @abc.abstractmethod
    def is_finite(self, learner: Any, metrics: Metrics) -> Array:
        """bool[], equal on all devices: no NaN, no infinity came up in the `update` that returned these."""

    @abc.abstractmethod
    def inspect(self, learner: Any, trajectory: Trajectory, key: Array) -> dict[str, Array]:
        """`update` again, with every quantity watched, to find where a NaN or an infinity came up first.

        Returns:
          Arrays of the updates in their order, [epochs, minibatches]: `loss/NAME` and `grad/norm`, float32;
          `output/NNN/LAYER` and `gradient/PARAMETER`, bool, True where something in it is not finite.
        """
