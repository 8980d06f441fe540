"""Tiny training programs for tests: an environment of noise, and a policy that reacts to its memory."""

from __future__ import annotations

import dataclasses
import math
import statistics
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.config import Config, default_config, resolve
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv
from jaxrl.metrics.reduction import Metrics
from jaxrl.networks import normalizer
from jaxrl.programs.iteration import Iteration
from jaxrl.programs.learning import environment_keys, iteration_keys
from jaxrl.types import Acting, Axis, EpisodeTotals, PyTree, TrainState, Trajectory

SMALL: dict[str, Any] = {
    "env.name": "jaxrl:ProbeValue",  # checked by `resolve`; the program is given its environment
    "env.num_envs": 8,
    "env.stagger": False,
    "network.core_size": 8,
    "network.hidden_sizes": (8,),
    "ppo.rollout_length": 16,
    "ppo.num_epochs": 2,
    "ppo.num_minibatches": 2,
    "ppo.schedule": "constant",
    "ppo.learning_rate": 1e-2,
    "stop.steps": 8 * 16 * 10,
    "log.layers": False,
}


@flax.struct.dataclass
class NoiseState:
    """int32[] steps of this episode so far, and int32[], the action that is forbidden now."""

    time: jax.Array
    forbidden: jax.Array


def _normal_quantile(chance: float) -> float:
    """The number that a standard normal one is below with this probability."""
    return statistics.NormalDist().inv_cdf(chance) if chance else -math.inf


class Noise(JaxEnv):
    """Observations, rewards and ends drawn from the keys alone: whatever a policy does, the same happens.

    Observation float32[3], normal around `offset`; reward normal around 1. An episode terminates with
    probability `terminate` at each step and is cut off with probability `truncate`, independently, so that
    both flags may be set at once. If `masked`, one of the three actions is forbidden, another one each step.
    """

    def __init__(
        self,
        terminate: float = 0.1,
        truncate: float = 0.1,
        max_episode_steps: int | None = None,
        masked: bool = False,
        offset: float = 0.0,
    ):
        # Standard normal numbers below these end an episode.
        self._ends = [_normal_quantile(terminate), _normal_quantile(truncate)]
        self._limit = max_episode_steps
        self._offset = offset
        self.spec = EnvSpec(
            name="test:Noise",
            observation_space=Box.of(-jnp.inf, jnp.inf, (3,)),
            action_space=Discrete(3),
            max_episode_steps=max_episode_steps,
            has_action_mask=masked,
        )

    def reset(self, key: jax.Array) -> tuple[NoiseState, jax.Array]:
        state, obs, _ = self._draw(key, jnp.zeros((), jnp.int32))
        return state, obs

    def step(self, key: jax.Array, state: NoiseState, action: jax.Array) -> tuple[NoiseState, TimeStep]:
        state, obs, rest = self._draw(key, state.time + 1)
        terminated, truncated = rest[1] < self._ends[0], rest[2] < self._ends[1]
        if self._limit is not None:
            truncated = truncated | (state.time >= self._limit)
        return state, TimeStep(obs, 1 + rest[0], terminated, truncated)

    def action_mask(self, state: NoiseState) -> jax.Array:
        return jnp.arange(3) != state.forbidden

    def _draw(self, key: jax.Array, time: jax.Array) -> tuple[NoiseState, jax.Array, jax.Array]:
        # One draw for everything: each takes long to compile.
        noise = jax.random.normal(key, (6,))
        forbidden = jnp.sum(noise[0] > jnp.array([-0.43, 0.43]))  # thirds of the normal distribution
        return NoiseState(time, forbidden), self._offset + noise[:3], noise[3:]


_configs: dict[tuple[int, str], Config] = {}


def tiny_config(device_count: int = 1, **fields: Any) -> Config:
    """`SMALL` with changes; `ppo__gamma=0.9` sets `ppo.gamma`. It is frozen, and resolved once."""
    # Not the values themselves: 1, 1.0 and True are equal, and not all of them are right.
    key = device_count, repr(sorted(fields.items()))
    if key not in _configs:
        config = default_config()
        changes = {name.replace("__", "."): value for name, value in fields.items()}
        for name, value in (SMALL | changes).items():
            section, _, field = name.rpartition(".")
            node = config[section] if section else config
            node[field] = value
        _configs[key] = resolve(config, device_count)
    return _configs[key]


@dataclass(frozen=True)
class Program:
    """`Iteration` on one device, with metrics as the numbers that they report."""

    iteration: Iteration

    @property
    def config(self) -> Config:
        return self.iteration.learning.config

    @property
    def agent(self) -> ActorCritic:
        agent = self.iteration.collector.agent
        assert isinstance(agent, ActorCritic)
        return agent

    @property
    def axis(self) -> Axis:
        return self.iteration.learning.axis

    @property
    def env(self) -> VectorEnv:
        return self.iteration.collector.env

    @property
    def hyperparams(self) -> PyTree:
        return self.iteration.learning.algorithm.hyperparameters(self.config)

    def init(self, key: jax.Array, hyperparams: PyTree = None) -> TrainState:
        return self.iteration.init(key, self.hyperparams if hyperparams is None else hyperparams)

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        return self.iteration.rollout(state)

    def update(self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals) -> Any:
        state, metrics = self.iteration.learning.update(state, trajectory, totals)
        return state, values(metrics)

    def iterate(self, state: TrainState) -> Any:
        return self.update(*self.rollout(state))


def rollout_keys(program: Program, state: TrainState) -> jax.Array:
    """The keys of the environments of the state's rollout, one each; on one device."""
    key, _ = iteration_keys(state.key, state.iteration)
    return environment_keys(key, jnp.arange(program.config.env.num_envs))


def values(metrics: Metrics) -> dict[str, jax.Array]:
    return {name: metric.value() for name, metric in metrics.items()}


def with_learner(state: TrainState, **fields: Any) -> TrainState:
    """With other fields of the learner's state."""
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, **fields))


def with_policy(state: TrainState, **fields: Any) -> TrainState:
    """With other parameters, or other statistics of the observations."""
    return with_learner(state, policy=dataclasses.replace(state.learner.policy, **fields))


def with_statistics(state: TrainState, rows: int) -> TrainState:
    """With statistics of so many observations: without any, PPO makes no update."""
    (mean,) = state.learner.policy.obs_stats.mean
    seen = 2.0 * jax.random.normal(jax.random.key(0), (rows, *mean.shape)) + 1.0
    return with_policy(state, obs_stats=normalizer.update(normalizer.init(mean), seen))


def tiny_program(env: JaxEnv | None = None, axis: Axis = Axis(), **fields: Any) -> Program:  # noqa: B008
    env = env or Noise()
    config = tiny_config(device_count=axis.size, **fields)
    agent = algorithms.build_agent(config, env.spec)
    return Program(Iteration.build(config, env, agent, axis))


def tiny_agent(spec: EnvSpec, **fields: Any) -> ActorCritic:
    """The agent of `tiny_config(**fields)` for these spaces, whatever its environment is."""
    agent = algorithms.build_agent(tiny_config(**fields), spec)
    assert isinstance(agent, ActorCritic)
    return agent


def loud(params: PyTree, factor: float = 100.0) -> PyTree:
    """Scales the policy's last layer up.

    It starts near zero, so that at first all actions are nearly equally likely whatever the memory holds:
    a wrong carry would change no log-probability.
    """

    def scale(path: Any, x: jax.Array) -> jax.Array:
        return x * factor if {"logits", "mean"} & {str(getattr(p, "key", "")) for p in path} else x

    return jax.tree_util.tree_map_with_path(scale, params)


def start(program: Program, seed: int = 0) -> TrainState:
    """The initial state with a policy that reacts to its memory."""

    @jax.jit
    def first(key: jax.Array) -> TrainState:
        state = program.init(key)
        return with_policy(state, params=loud(state.learner.policy.params))

    return first(jax.random.key(seed))


def over_time(agent: ActorCritic, params: PyTree, obs: PyTree, carry: PyTree, reset: jax.Array) -> PyTree:
    """The agent stepped by hand: (distribution, value) of [T, B], and T + 1 carries, before each step.

    Observations are as its network sees them.
    """

    @jax.jit
    def step(obs: PyTree, carry: PyTree, reset: jax.Array) -> Any:
        return agent.forward(Acting(params, None), obs, carry, reset, None)

    outputs, carries = [], []
    obs, reset = jax.tree.map(np.asarray, (obs, reset))
    for t in range(reset.shape[0]):
        carries.append(carry)
        out = step(jax.tree.map(lambda x: x[t], obs), carry, reset[t])  # noqa: B023
        carry = out.carry
        outputs.append((out.distribution, out.value))
    stack = lambda *xs: jnp.asarray(np.stack(xs))  # noqa: E731
    distribution, value = jax.tree.map(stack, *outputs)
    return distribution, value, jax.tree.map(stack, *carries, carry)
