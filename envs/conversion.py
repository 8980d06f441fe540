"""From the values of a user environment to the arrays of policies and collectors, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Dict, JaxEnv, Mixed, Space, TimeStep
from jaxrl.envs.numbering import counted_from_zero, is_renumbered, own_numbers
from jaxrl.envs.wrappers.wrapper import Wrapper


class Converted(Wrapper):
    """Converts what `jaxrl.envs.checks.check_types` found to be unambiguous; changes no value."""

    for_agents = True

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *task)
        return state, _as(self.spec.observation_space, obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        return state, dataclasses.replace(
            timestep,
            obs=_as(self.spec.observation_space, timestep.obs),
            reward=jnp.asarray(timestep.reward, jnp.float32),
            terminated=jnp.asarray(timestep.terminated, bool),
            truncated=jnp.asarray(timestep.truncated, bool),
        )

    def central(self, state: Any) -> Any:
        assert self.spec.central_observation is not None
        return _as(self.spec.central_observation, super().central(state))


class CountedFromZero(Wrapper):
    """Observations and actions counted from 0, of an environment whose spaces have a `start`.

    The spaces keep it, for data and files (`jaxrl.envs.spaces`). Tasks keep the environment's numbers.
    """

    for_agents = True

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        self.spec = dataclasses.replace(env.spec, counts_from_zero=True)

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *task)
        return state, counted_from_zero(self.spec.observation_space, obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, own_numbers(self.spec.action_space, action))
        obs = counted_from_zero(self.spec.observation_space, timestep.obs)
        return state, dataclasses.replace(timestep, obs=obs)

    def central(self, state: Any) -> Any:
        assert self.spec.central_observation is not None
        return counted_from_zero(self.spec.central_observation, super().central(state))

    def solve(self, state: Any) -> jax.Array:
        return counted_from_zero(self.spec.action_space, super().solve(state))


def with_numbers_from_zero(env: JaxEnv) -> JaxEnv:
    """The environment as policies see it: itself if its numbers are from 0 already."""
    spec = env.spec
    spaces = (spec.observation_space, spec.action_space, spec.central_observation)
    has_start = any(space is not None and is_renumbered(space) for space in spaces)
    return CountedFromZero(env) if has_start and not spec.counts_from_zero else env


class MixedActions(Wrapper):
    """Takes actions as one vector (`Mixed`), for an environment that takes a dict."""

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        assert isinstance(env.spec.action_space, Dict)
        self._space = Mixed(env.spec.action_space.spaces)  # type: ignore[arg-type]
        self.spec = dataclasses.replace(env.spec, action_space=self._space, has_solver=False)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        return self.env.step(key, state, self._space.parts(action))  # type: ignore[arg-type]


def _as(space: Space, obs: Any) -> Any:
    if isinstance(space, Dict):
        return {key: _as(part, obs[key]) for key, part in space.spaces}
    return jnp.asarray(obs, space.dtype)
