"""Brax (Freeman et al. 2021), rigid bodies on the device, and suites in its form, as `JaxEnv`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.adapters.suite import load, numbers, raw_key, refusals, suite_rules
from jaxrl.envs.base import Box, Dict, EnvSpec, InfoMetric, JaxEnv, Space, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, check_positive
from jaxrl.envs.trees import TimedState, strong_types


class PhysicsEnv(JaxEnv):
    """An environment of such a suite without its wrappers, which cut episodes off and restart them.

    A termination is what the suite calls done, a truncation the end after `limit` steps. What the suite calls
    metrics is reported: the sum of each part of the reward, the mean of everything else.
    """

    def __init__(self, name: str, env: Any, limit: int):
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
        return TimedState(env_state, time), TimeStep(
            obs=env_state.obs,
            reward=env_state.reward.astype(jnp.float32),
            terminated=env_state.done > 0,
            truncated=time >= self._limit,
            info=numbers(env_state.metrics),
        )


def reports(metrics: Iterable[str]) -> tuple[InfoMetric, ...]:
    """The metrics of the suite: the sum of each part of the reward, the mean of everything else."""
    return tuple(InfoMetric(key, "sum" if key.startswith("reward") else "mean") for key in sorted(metrics))


def _space(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple((key, _space(part)) for key, part in sorted(obs.items())))
    return Box.of(-math.inf, math.inf, obs.shape)


def names() -> Sequence[str]:
    return tuple(sorted(load("brax.envs", "brax")._envs))


def make(name: str, episode_length: int = 1000, **kwargs: Any) -> PhysicsEnv:
    """Makes one of `names()`; `kwargs` are of its class, such as `backend="spring"`.

    After `episode_length` steps an episode is cut off; the default is of the suite's training wrappers.
    """
    label = f"brax:{name}"
    check_numbers(label, kwargs)
    limit = check_positive(f"{label}: episode_length", episode_length)
    package = load("brax.envs", "brax")
    with refusals(label, kwargs, TypeError, ValueError):
        env = package.get_environment(name, **kwargs)
        return PhysicsEnv(changed_call(label, make, locals()), env, limit)
