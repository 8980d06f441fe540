"""Training programs over all devices: sharded, compiled when first used, on global arrays."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Algorithm, optimizer, rollout_state
from jaxrl.config import Config
from jaxrl.metrics.reduction import Interval, Metrics
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, specs, to_host
from jaxrl.programs.learning import Learning
from jaxrl.types import Array, EpisodeTotals, LearnerState, PyTree, TrainState, Trajectory


class ShardedLearning:
    """`Learning` on a topology. Arguments called `state` are donated, unless said otherwise.

    Attributes:
      per_device: the work of one device; built for the topology's axis.
      state_specs: how a `TrainState` is laid out on them.
      rollout_specs: how a trajectory is, and totals of episodes, one on each device; of nothing if nothing is
        collected.
    """

    def __init__(
        self, learning: Learning, init: Callable[[Array, PyTree], TrainState], topology: Topology
    ) -> None:
        """`init` makes one device's part of the first state, from a key and hyperparameters."""
        self.per_device = learning
        self.topology = topology
        memory = learning.memory.state_type
        self._shards = learning.algorithm.optimizer_shards()
        parts = {} if self._shards is None else {"opt_state": _optimizer_specs()}
        self.state_specs = specs(
            TrainState,
            learner=specs(learning.algorithm.state_type, **parts),
            memory=REPLICATED if memory is None else specs(memory),
        )
        self.rollout_specs = (specs(Trajectory), SHARDED) if learning.config.collects else (None, None)

        def begin(key: Array, hyperparams: PyTree, planned: Array | None) -> TrainState:
            state = init(key, hyperparams)  # Runs of any length share this program too.
            return dataclasses.replace(state, learner=dataclasses.replace(state.learner, planned=planned))

        start = (REPLICATED, REPLICATED, REPLICATED)
        self._init = topology.shard(begin, start, self.state_specs, brief=True)
        self._init_memory = topology.shard(
            lambda *start: begin(*start).memory, start, self.state_specs.memory, brief=True
        )
        inputs = (self.state_specs, *self.rollout_specs)
        self._update = topology.shard(learning.update, inputs, (self.state_specs, REPLICATED), donate=True)

    def with_config(self, config: Config) -> ShardedLearning:
        """The same programs for a run of another seed, length and numeric hyperparameters."""
        other = copy.copy(self)
        other.per_device = dataclasses.replace(self.per_device, config=config)
        return other

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that learns."""
        return self.per_device.algorithm

    def initial_state(self, stream: int = 0) -> TrainState:
        """The state before the first iteration, from the configuration's seed.

        Another `stream` than 0 is another state, with other random numbers from the same seed.
        """
        key, *numbers = self._start()
        return self._init(jax.random.fold_in(key, stream) if stream else key, *numbers)

    def require_renewable(self, patterns: tuple[str, ...]) -> None:
        """Raises ConfigError if parameters of `patterns` cannot be sampled again, or there are none."""
        rollout_state.require_renewable(self.algorithm, patterns)

    def renew(self, learner: LearnerState, fresh: LearnerState, patterns: tuple[str, ...]) -> LearnerState:
        """`rollout_state.renew` on all devices."""
        layout = self.state_specs.learner
        program = self.topology.shard(
            lambda old, new: rollout_state.renew(old, new, patterns, self._shards), (layout, layout), layout
        )
        return program(learner, fresh)

    def empty_memory(self) -> PyTree:
        """The memory of the first state; the rest of that is not made."""
        return self._init_memory(*self._start())

    def abstract_state(self) -> TrainState:
        """Shapes, dtypes and shardings of the state."""
        shapes = jax.eval_shape(self._init, *jax.eval_shape(self._start))
        return self.topology.abstract(shapes, self.state_specs)

    def abstract_whole(self) -> TrainState:
        """As `abstract_state`, of what `whole` returns."""
        state = self.abstract_state()
        if self._shards is None:
            return state
        count = self._shards.count
        learner: Any = state.learner

        def all_of(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((count,) if x.shape else (), x.dtype)

        opt_state = self.topology.abstract(jax.tree.map(all_of, learner.opt_state), REPLICATED)
        return _with_optimizer(state, opt_state)

    def whole(self, state: TrainState) -> TrainState:
        """The state as checkpoints hold it: all of the optimiser's vectors, on the host if they are divided.

        Any number of devices continues it then. All processes must call it.
        """
        if self._shards is None:
            return state
        count = self._shards.count
        learner: Any = state.learner
        trim = lambda x: x[:count] if x.ndim else x  # noqa: E731
        return _with_optimizer(state, jax.tree.map(trim, to_host(learner.opt_state)))

    def divided(self, state: TrainState) -> TrainState:
        """Inverse of `whole`, for vectors that every device holds."""
        shards = self._shards
        if shards is None:
            return state
        learner: Any = state.learner
        own = lambda x: shards.own(shards.pad(x)) if x.ndim else x  # noqa: E731
        divide = self.topology.shard(
            lambda tree: jax.tree.map(own, tree), (REPLICATED,), _optimizer_specs(), brief=True
        )
        return _with_optimizer(state, divide(learner.opt_state))

    def empty_interval(self) -> Interval:
        """The metrics of no iterations, on the devices."""
        return self.topology.replicate(self.per_device.empty_interval())

    def update(
        self, state: TrainState, trajectory: Trajectory | None, totals: EpisodeTotals | None
    ) -> tuple[TrainState, Metrics]:
        """`Learning.update`; totals are of [devices]."""
        return self._update(state, trajectory, totals)

    def trace(self, fn: Callable[..., Any], inputs: Any, *arguments: Any) -> Any:
        """A program (state, interval, ...) -> (state, interval, failed) over all devices, as JAX traced it.

        `fn` is the work of one device, `inputs` the specs of its arguments after the first two, `arguments`
        these, or their shapes.
        """
        outputs = (self.state_specs, REPLICATED, REPLICATED)
        program = self.topology.shard(fn, (self.state_specs, REPLICATED, *inputs), outputs, donate=True)
        interval = self.topology.abstract(jax.eval_shape(self.per_device.empty_interval), REPLICATED)
        return program.trace(self.abstract_state(), interval, *arguments)

    def _start(self) -> tuple[Array, PyTree, Array | None]:
        config = self.per_device.config
        planned = None if config.follows_clock else jnp.float32(config.total_updates)
        return jax.random.key(config.seed), self.per_device.algorithm.hyperparameters(config), planned


def _optimizer_specs() -> PyTree:
    """The layout of the optimiser's state on the devices if its vectors are divided."""
    state = jax.eval_shape(optimizer.optimizer(1.0, 1.0).init, jnp.zeros(1))
    return jax.tree.map(lambda x: SHARDED if x.ndim else REPLICATED, state)


def _with_optimizer(state: TrainState, opt_state: PyTree) -> TrainState:
    learner: Any = state.learner
    return dataclasses.replace(state, learner=dataclasses.replace(learner, opt_state=opt_state))
