"""`previous_reward`: what a policy got, as part of what it sees."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, JaxEnv, TimeStep
from jaxrl.envs.wrappers.wrapper import Wrapper, require_box


class PreviousReward(Wrapper):
    """Appends the previous reward to a vector observation, 0 at the start of an episode.

    The observation becomes float32. `previous_action` appends the action too.
    """

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        space = require_box("previous_reward", env, ndim=1)
        box = Box((*space.low, -math.inf), (*space.high, math.inf), (space.shape[0] + 1,))
        self.spec = dataclasses.replace(env.spec, observation_space=box, stacked_frames=1)

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *task)
        return state, with_number(obs, jnp.zeros((), jnp.float32))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        return state, dataclasses.replace(timestep, obs=with_number(timestep.obs, timestep.reward))


def with_number(obs: jax.Array, number: jax.Array) -> jax.Array:
    """float32[..., F + 1]: observations [..., F] and one number [...] each."""
    return jnp.concatenate([obs.astype(jnp.float32), number[..., None]], axis=-1)
