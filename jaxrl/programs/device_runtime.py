"""Training on environments that are JAX code, or without any: iterations, or a run, as one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from ml_collections import ConfigDict

from jaxrl import algorithms
from jaxrl.algorithms.suitable_networks import network_on
from jaxrl.config import Config, ConfigError, declared_fields, resolve
from jaxrl.config.resolution import require_config
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec, JaxEnv
from jaxrl.metrics.reduction import Interval, Metric, Metrics
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


def hyperparameters(config: ConfigDict | Config, **values: ArrayLike) -> PyTree:
    """The algorithm's numeric hyperparameters for `make_train`, with other values for some of them.

        rates = jaxrl.hyperparameters(config, learning_rate=[1e-3, 3e-3, 1e-2])
        states, metrics = jax.jit(jax.vmap(train, in_axes=(None, 0)))(key, rates)

    Args:
      config: the configuration; says what is not given here.
      values: by the name of the field (without its section), a number or an array. Arrays must have one
        shape, or broadcast to one: then every hyperparameter gets that shape, so that `vmap` maps over all.

    Returns:
      A dataclass of float32 arrays of one shape, `()` if only numbers are given; for PPO
      `learning_rate`, `gamma`, `gae_lambda`, `clip_range`, `entropy_coef`, `value_coef`, `max_grad_norm`
      and `target_kl` (read only if the configuration sets it).

    Raises:
      ConfigError: a name is no numeric hyperparameter, a value breaks the rule of its field, shapes do not
        fit together, or `target_kl` is given but the configuration has none.
    """
    config = _resolve(config)
    defaults = algorithms.hyperparameters(config)
    section = config.section
    declared = declared_fields(config.algorithm)
    names = [field.name for field in dataclasses.fields(defaults)]
    for name, value in values.items():
        field = f"{section}.{name}"
        if name not in names:
            raise ConfigError(f"`{field}` is no numeric hyperparameter; those are {', '.join(names)}")
        if getattr(config.learner, name) is None:
            raise ConfigError(f"`{field}` must be set in the configuration: without it none is compiled in")
        for number in np.ravel(np.asarray(value)):
            declared[field].check(number.item())
    try:
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    except ValueError as error:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in values.items())
        raise ConfigError(f"hyperparameters must have one shape, not {shapes}") from error
    given = dataclasses.replace(
        defaults, **{name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    )
    return jax.tree.map(lambda x: jnp.broadcast_to(x, shape), given)


def make_train(config: ConfigDict | Config) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Returns `train(key, hyperparams=None) -> (state, metrics)`, a pure function for one device.

    `train` runs the whole of `stop.steps` and may be jitted and vmapped: over keys for a batch of seeds,
    over hyperparameters (`jaxrl.hyperparameters`) for a sweep, or over both. Metrics are [iterations] arrays,
    explained in docs/metrics.md; averages are NaN if there was nothing to average, such as
    `episode/return` if no episode ended. A run that meets a NaN continues with it (`nonfinite="skip"`
    drops such updates): one of many must not end the others.

    Raises:
      ConfigError: a field is unknown, of the wrong type or out of range.
    """
    config = _resolve(config)
    if config.collects and registry.is_host(config.env.name):
        name = config.env.name
        raise ConfigError(f"`env.name` (={name!r}) runs on the host: make_train needs a device environment")
    if config.stages:
        raise ConfigError("`stages` are for jaxrl.Trainer: make_train is one program")
    if config.stop.steps is None:
        raise ConfigError("`stop.steps` (=None) must be a number: make_train has no clock")
    env, spec = environment(config)
    topology = Topology.on(jax.local_devices()[:1])
    axis = dataclasses.replace(topology.axis, name=None)  # no mesh, so that callers may vmap it
    agent = algorithms.build_agent(network_on(config, topology.axis, topology.own_device), spec)
    iteration = Iteration.build(config, env, agent, axis)
    algorithm = iteration.learning.algorithm
    others = {"init_from": config.init_from, "resume_from": config.resume_from}
    for field, folder in (algorithm.teacher, *others.items()):
        if folder:
            raise ConfigError(f"`{field}` (={folder!r}) must be empty: make_train reads no other run")

    def train(key: Array, hyperparams: PyTree = None) -> tuple[TrainState, dict[str, Array]]:
        state = iteration.init(key, hyperparams or algorithm.hyperparameters(config))
        state, metrics = _iterate(iteration, state, config.num_iterations)
        return state, {name: _value(metric) for name, metric in metrics.items()}

    return train


def _iterate(iteration: Iteration, state: TrainState, count: int) -> tuple[TrainState, Metrics]:
    """The state after `count` iterations, and their metrics [count]."""
    every = iteration.learning.config.refresh_iterations or count

    def some(state: TrainState, length: int) -> tuple[TrainState, Metrics]:
        if iteration.learning.config.refresh_iterations:
            state = iteration.refresh(state)
        return jax.lax.scan(lambda state, _: iteration.iterate(state), state, length=length)

    if every >= count:
        return some(state, count)
    state, metrics = jax.lax.scan(lambda state, _: some(state, every), state, length=count // every)
    metrics = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), metrics)
    if count % every:
        state, rest = some(state, count % every)
        metrics = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), metrics, rest)
    return state, metrics


def _value(metric: Metric) -> Array:
    """The value of a metric, NaN if it is empty."""
    value = metric.value()
    is_empty = metric.is_empty
    return value if is_empty is False else jnp.where(is_empty, jnp.nan, value)


def _resolve(config: ConfigDict | Config) -> Config:
    """The configuration for one device."""
    require_config(config)
    if isinstance(config, ConfigDict):
        config = resolve(config, 1)
    return dataclasses.replace(config, device_count=1)
