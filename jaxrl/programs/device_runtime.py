"""Training on environments that are JAX code, or without any: whole iterations are one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.suitable_networks import network_on
from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec, JaxEnv
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.compilation import compile_in_turn
from jaxrl.parallel.sharding import REPLICATED, Topology
from jaxrl.programs.iteration import Iteration
from jaxrl.programs.runtime import Runtime
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.types import Array, Axis, EpisodeTotals, PyTree, TrainState, Trajectory


class DeviceRuntime(Runtime):
    """See `Runtime`."""

    one_program = True

    def __init__(self, config: Config, topology: Topology) -> None:
        self._env, self.spec = environment(config)
        self.agent = algorithms.build_agent(network_on(config, topology.axis, topology.own_device), self.spec)
        self.iteration = Iteration.build(config, self._env, self.agent, topology.axis)
        self.learning = ShardedLearning(self.iteration.learning, self.iteration.init, topology)
        specs = self.learning.state_specs
        outputs = (specs, *self.learning.rollout_specs)
        self._rollout = topology.shard(self._rows, (specs,), outputs, donate=True)
        self._failed = topology.shard(self._rows, (specs,), outputs)
        self._refresh = topology.shard(self.iteration.refresh, (specs,), specs, donate=True)

    def trace(self) -> Any:
        return self.learning.trace(self.iteration.repeat, (REPLICATED,), jax.ShapeDtypeStruct((), jnp.int32))

    def compile(self) -> None:
        self.compiled = compile_in_turn(lambda: self.trace().lower())
        if self.learning.per_device.config.refresh_iterations:
            self._refresh = self._refresh.lower(self.learning.abstract_state()).compile()

    def advance(
        self, state: TrainState, interval: Interval, count: int
    ) -> tuple[TrainState, Interval, Array]:
        iterations = self.learning.topology.replicate(np.int32(count))
        return self.compiled(state, interval, iterations)

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory | None, EpisodeTotals | None]:
        return self._rollout(state)

    def refresh(self, state: TrainState) -> TrainState:
        return self._refresh(state)

    def rollouts(self, count: int) -> Callable[[TrainState], PyTree] | None:
        if not self.learning.per_device.config.collects:
            return None
        axis = self.learning.topology.axis
        specs = self.learning.state_specs

        def rollout(_: Array, loop: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            before, total = loop
            state, trajectory, _totals = self.iteration.rollout(before)
            # Everything in a trajectory must be used, or XLA leaves it out.
            used = sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(trajectory))
            return dataclasses.replace(state, iteration=before.iteration + 1), total + used

        def repeat(state: TrainState) -> tuple[TrainState, Array]:
            after, total = jax.lax.fori_loop(0, count, rollout, (state, jnp.zeros(())))
            return after, axis.psum(total)

        return self.learning.topology.shard(repeat, (specs,), (specs, REPLICATED))

    def failed_rollout(self, state: TrainState) -> Trajectory | None:
        return self._failed(state)[1]

    def single_device_iteration(self, state: TrainState) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
        config = dataclasses.replace(self.learning.per_device.config, device_count=1)
        return Iteration.build(config, self._env, self.agent, Axis()).iterate, (state,)

    def _rows(self, state: TrainState) -> tuple[TrainState, Trajectory | None, EpisodeTotals | None]:
        """`Iteration.rollout` with totals of [1], one on each device."""
        state, trajectory, totals = self.iteration.rollout(state)
        return state, trajectory, jax.tree.map(lambda x: x[None], totals)


def describe_network(config: Config) -> str:
    """The network of a configuration in words, before anything that trains it is built."""
    spec = registry.spec_of(config.env.name, config.env.wrappers)
    return algorithms.build_agent(config, spec).description


def environment(config: Config) -> tuple[JaxEnv | None, EnvSpec]:
    """The environment that training steps, None if nothing is collected, and the spec of `env.name`."""
    name = config.env.name
    wrappers = config.env.wrappers
    if not config.collects:
        return None, registry.spec_of(name, wrappers)
    env = registry.make(name, wrappers)
    return env, env.spec
