"""Training on environments that are JAX code: whole iterations are one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs import registry
from jaxrl import networks
from jaxrl.config import Config
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.sharding import REPLICATED, Topology
from jaxrl.training.iteration import Iteration
from jaxrl.training.recurrence import network_on
from jaxrl.training.runtime import Runtime
from jaxrl.training.sharded_learning import ROLLOUT_SPECS, ShardedLearning
from jaxrl.types import Array, Axis, EpisodeTotals, PyTree, TrainState, Trajectory


class DeviceRuntime(Runtime):
    """See `Runtime`.

    Attributes:
      iteration: the program of one device.
    """

    one_program = True

    def __init__(self, config: Config, topology: Topology) -> None:
        self._env = registry.make(config.env.name, config.env.wrappers)
        self.spec = self._env.spec
        self.policy = networks.build(network_on(config.network, topology), self.spec, config.normalize)
        self.iteration = Iteration.build(config, self._env, self.policy, topology.axis)
        self.learning = ShardedLearning(self.iteration.learning, self.iteration.init, topology)
        specs = self.learning.state_specs
        self._rollout = topology.shard(self._rows, (specs,), (specs, *ROLLOUT_SPECS), donate=True)
        self._failed = topology.shard(self._rows, (specs,), (specs, *ROLLOUT_SPECS))

    def trace(self) -> Any:
        return self.learning.trace(self.iteration.repeat, (REPLICATED,), jax.ShapeDtypeStruct((), jnp.int32))

    def compile(self) -> None:
        self.compiled = self.trace().lower().compile()

    def prepare(self, state: TrainState) -> TrainState:
        return state

    def advance(
        self, state: TrainState, interval: Interval, count: int
    ) -> tuple[TrainState, Interval, Array]:
        iterations = self.learning.topology.replicate(np.int32(count))
        advanced: tuple[TrainState, Interval, Array] = self.compiled(state, interval, iterations)
        return advanced

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        collected: tuple[TrainState, Trajectory, EpisodeTotals] = self._rollout(state)
        return collected

    def rollouts(self, count: int) -> Callable[[TrainState], PyTree]:
        axis, specs = self.learning.topology.axis, self.learning.state_specs

        def rollout(_: Array, loop: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            before, total = loop
            state, trajectory, _totals = self.iteration.rollout(before)
            # Everything in a trajectory must be used, or XLA leaves it out.
            used = sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(trajectory))
            return dataclasses.replace(state, iteration=before.iteration + 1), total + used

        def repeated(state: TrainState) -> tuple[TrainState, Array]:
            after, total = jax.lax.fori_loop(0, count, rollout, (state, jnp.zeros(())))
            return after, axis.psum(total)

        program: Callable[[TrainState], PyTree] = self.learning.topology.shard(
            repeated, (specs,), (specs, REPLICATED)
        )
        return program

    def failed_rollout(self, state: TrainState) -> Trajectory:
        trajectory: Trajectory = self._failed(state)[1]
        return trajectory

    def alone(self, state: TrainState) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
        config = dataclasses.replace(self.learning.learning.config, device_count=1)
        return Iteration.build(config, self._env, self.policy, Axis()).iterate, (state,)

    def shares(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing runs beside the program."""

    def _rows(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        """`Iteration.rollout` with totals of [1], one on each device."""
        state, trajectory, totals = self.iteration.rollout(state)
        return state, trajectory, jax.tree.map(lambda x: x[None], totals)
