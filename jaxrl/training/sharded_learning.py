"""Training programs over all devices: sharded, compiled when first used, on global arrays."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from jaxrl.algorithms import Algorithm
from jaxrl.config import Config
from jaxrl.metrics.reduction import Interval, Metrics
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, specs
from jaxrl.training.learning import Learning
from jaxrl.types import Array, EpisodeTotals, PyTree, TrainState, Trajectory

TRAJECTORY_SPECS = specs(Trajectory)
# Totals of episodes lie one on each device.
ROLLOUT_SPECS = (TRAJECTORY_SPECS, SHARDED)


class ShardedLearning:
    """`Learning` on a topology. Arguments called `state` are donated, unless said otherwise.

    Attributes:
      learning: what one device does; built for the topology's axis.
      topology: the devices.
      state_specs: how a `TrainState` lies on them.
    """

    def __init__(
        self, learning: Learning, init: Callable[[Array, PyTree], TrainState], topology: Topology
    ) -> None:
        """`init` makes one device's part of the first state, from a key and hyperparameters."""
        self.learning = learning
        self.topology = topology
        self.state_specs = specs(TrainState, learner=specs(learning.algorithm.state_type))
        self._init = topology.shard(init, (REPLICATED, REPLICATED), self.state_specs)
        inputs = (self.state_specs, *ROLLOUT_SPECS)
        self._update = topology.shard(learning.update, inputs, (self.state_specs, REPLICATED), donate=True)

    def with_config(self, config: Config) -> ShardedLearning:
        """The same programs for a run with another seed and other numeric hyperparameters."""
        other = copy.copy(self)
        other.learning = dataclasses.replace(self.learning, config=config)
        return other

    @property
    def algorithm(self) -> Algorithm:
        """What learns."""
        return self.learning.algorithm

    def initial_state(self) -> TrainState:
        """The state before the first iteration, from the configuration's seed."""
        state: TrainState = self._init(*self._start())
        return state

    def abstract_state(self) -> TrainState:
        """Shapes, dtypes and shardings of the state."""
        shapes = jax.eval_shape(self._init, *self._start())
        return self.topology.abstract(shapes, self.state_specs)

    def empty_interval(self) -> Interval:
        """The metrics of no iterations, on the devices."""
        interval: Interval = self.topology.replicate(self.learning.empty_interval())
        return interval

    def update(
        self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, Metrics]:
        """`Learning.update`; totals are of [devices]."""
        updated: tuple[TrainState, Metrics] = self._update(state, trajectory, totals)
        return updated

    def trace(self, fn: Callable[..., Any], inputs: Any, *arguments: Any) -> Any:
        """A program (state, interval, ...) -> (state, interval, failed) over all devices, as JAX traced it.

        Args:
          fn: what one device does.
          inputs: specs of its arguments after the first two.
          arguments: these, or their shapes.
        """
        outputs = (self.state_specs, REPLICATED, REPLICATED)
        program = self.topology.shard(fn, (self.state_specs, REPLICATED, *inputs), outputs, donate=True)
        interval = self.topology.abstract(jax.eval_shape(self.learning.empty_interval), REPLICATED)
        return program.trace(self.abstract_state(), interval, *arguments)

    def _start(self) -> tuple[Array, PyTree]:
        config = self.learning.config
        return jax.random.key(config.seed), self.learning.algorithm.hyperparameters(config)
