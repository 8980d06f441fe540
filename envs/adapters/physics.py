"""Suites of physics in Brax's form: a state with `obs`, `reward`, `done` and `metrics`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.adapters.suite import numbers, raw_key, suite_rules
from jaxrl.envs.base import Box, Dict, EnvSpec, InfoMetric, JaxEnv, Space, TimeStep
from jaxrl.envs.trees import TimedState, strong_types


class PhysicsEnv(JaxEnv):
    """An environment of such a suite without its wrappers, which cut episodes off and restart them.

    A termination is what the suite calls done, a truncation the end after `limit` steps. What the suite calls
    metrics is reported: the sum of each part of the reward, the mean of everything else.
    """

    def __init__(self, name: str, env: Any, limit: int):
        """Takes its full name, the environment of the suite, and the limit of steps."""
        self._env = env
        self._limit = limit
        with suite_rules():
            state, obs = jax.eval_shape(self.reset, jax.random.key(0))
            size = int(env.action_size)
        self.spec = EnvSpec(
            name=name,
            observation_space=_space(obs),
            action_space=Box.of(-1.0, 1.0, (size,)),
            max_episode_steps=limit,
            reports=reports(state.env.metrics),
        )

    def reset(self, key: jax.Array) -> tuple[TimedState, Any]:
        with suite_rules():
            state = strong_types(self._env.reset(raw_key(key)))
        return TimedState(state, jnp.zeros((), jnp.int32)), state.obs

    def step(self, key: jax.Array, state: TimedState, action: jax.Array) -> tuple[TimedState, TimeStep]:
        with suite_rules():
            env_state = strong_types(self._env.step(state.env, action))
        time = state.time + 1
        timestep = TimeStep(
            obs=env_state.obs,
            reward=env_state.reward.astype(jnp.float32),
            terminated=env_state.done > 0,
            truncated=time >= self._limit,
            info=numbers(env_state.metrics),
        )
        return TimedState(env_state, time), timestep


def reports(metrics: Iterable[str]) -> tuple[InfoMetric, ...]:
    """The metrics of the suite: the sum of each part of the reward, the mean of everything else."""
    return tuple(InfoMetric(key, "sum" if key.startswith("reward") else "mean") for key in sorted(metrics))


def _space(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple((key, _space(part)) for key, part in sorted(obs.items())))
    return Box.of(-math.inf, math.inf, obs.shape)
