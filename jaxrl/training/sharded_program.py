"""Training programs over all devices: sharded, compiled when first used, on global arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.parallel.sharding import REPLICATED, SHARDED, STATE_SPECS, TRAJECTORY_SPECS, Topology
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.training.host_program import HostProgram
from jaxrl.training.iteration import Learning, Program, hyperparams_of
from jaxrl.types import Array, TrainState, Trajectory


class Sharded:
    """`Learning` on a topology. Arguments called `state` are donated, unless said otherwise."""

    totals_specs: Any = REPLICATED

    def __init__(self, program: Learning, topology: Topology) -> None:
        """`program` must have been built for the topology's axis."""
        self.program = program
        self.topology = topology
        self._jitted: dict[str, Any] = {}

    def initial_state(self) -> TrainState:
        """The state before the first iteration, from the configuration's seed."""
        config = self.program.config
        return self._init(jax.random.key(config.seed), hyperparams_of(config))

    def abstract_state(self) -> TrainState:
        """Shapes, dtypes and shardings of the state."""
        hyperparams = hyperparams_of(self.program.config)
        shapes = jax.eval_shape(self._init, jax.random.key(0), hyperparams)
        return self.topology.abstract(shapes, STATE_SPECS)

    def no_metrics(self) -> dict[str, Array]:
        """The sums of no iterations, on the devices."""
        return self.topology.replicate(self.program.no_metrics())

    def update(
        self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, dict[str, Array]]:
        """`Learning.update`."""
        inputs = (STATE_SPECS, TRAJECTORY_SPECS, self.totals_specs)
        return self._shard("update", self.program.update, inputs, (STATE_SPECS, REPLICATED), True)(
            state, trajectory, totals
        )

    @property
    def _init(self) -> Any:
        return self._shard("init", self.program.init, (REPLICATED, REPLICATED), STATE_SPECS, False)

    def _shard(self, name: str, fn: Callable[..., Any], inputs: Any, outputs: Any, donate: bool) -> Any:
        key = f"{name}, donated" if donate else name
        if key not in self._jitted:
            self._jitted[key] = self.topology.shard(fn, inputs, outputs, donate)
        return self._jitted[key]

    def _trace(self, fn: Callable[..., Any], inputs: Any, *arguments: Any) -> Any:
        """A program (state, sums, ...) -> (state, sums, failed), as JAX traced it."""
        outputs = (STATE_SPECS, REPLICATED, REPLICATED)
        program = self.topology.shard(fn, (STATE_SPECS, REPLICATED, *inputs), outputs, donate=True)
        sums = self.topology.abstract(jax.eval_shape(self.program.no_metrics), REPLICATED)
        return program.trace(self.abstract_state(), sums, *arguments)


class ShardedProgram(Sharded):
    """`Program` on a topology."""

    program: Program

    def lower_repeat(self) -> Any:
        """`Program.repeat`, lowered for compilation."""
        return self.trace_repeat().lower()

    def trace_repeat(self) -> Any:
        """`Program.repeat`, as JAX traced it."""
        return self._trace(self.program.repeat, (REPLICATED,), jax.ShapeDtypeStruct((), jnp.int32))

    def rollout(self, state: TrainState, donate: bool = True) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        """`Program.rollout`; the trajectory is of [T, num_envs, ...]."""
        outputs = (STATE_SPECS, TRAJECTORY_SPECS, REPLICATED)
        return self._shard("rollout", self.program.rollout, (STATE_SPECS,), outputs, donate)(state)


class ShardedHostProgram(Sharded):
    """`HostProgram` on a topology; totals of episodes lie one on each device."""

    program: HostProgram
    totals_specs = SHARDED

    def lower_learn(self) -> Any:
        """`HostProgram.learn`, lowered for compilation."""
        config = self.program.config
        example = jax.eval_shape(lambda: self.program.example_rollout(config.env.num_envs))
        specs = (TRAJECTORY_SPECS, SHARDED)
        return self._trace(self.program.learn, specs, *self.topology.abstract(example, specs)).lower()
