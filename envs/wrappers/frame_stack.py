"""`frame_stack`: the latest observations as one."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, JaxEnv, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.wrappers.wrapper import StatefulWrapper, WrapperState, require_box, require_channels_last

_MOST_FRAMES = 128


class FrameStack(StatefulWrapper):
    """Joins the latest `frames` observations along their last axis, the oldest first.

    A vector of n becomes one of `frames * n`, an image [H, W, C] one of [H, W, frames * C]. At the start of
    an episode the first observation is repeated.
    """

    def __init__(self, env: JaxEnv, frames: int = 4):
        super().__init__(env)
        self.frames = check_positive("wrapper frame_stack: frames", frames, _MOST_FRAMES)
        space = require_box("frame_stack", env)
        if not space.shape:
            raise ValueError(
                f"wrapper frame_stack needs an observation with axes; {env.spec.name} has a number"
            )
        require_channels_last("frame_stack", env)
        low, high = (np.reshape(bound, space.shape) for bound in (space.low, space.high))
        low, high = (np.concatenate([bound] * frames, axis=-1) for bound in (low, high))
        stacked = Box.of(low, high, low.shape, space.dtype)
        self.spec = dataclasses.replace(env.spec, observation_space=stacked, stacked_frames=frames)

    def reset(self, key: jax.Array, *task: Any) -> tuple[WrapperState, Any]:
        state, obs = self.env.reset(key, *task)
        stack = jnp.concatenate([obs] * self.frames, axis=-1)
        return WrapperState(state, stack), stack

    def step(self, key: jax.Array, state: WrapperState, action: jax.Array) -> tuple[WrapperState, TimeStep]:
        env_state, timestep = self.env.step(key, state.env, action)
        size = timestep.obs.shape[-1]
        stack = jnp.concatenate([state.own[..., size:], timestep.obs], axis=-1)
        return WrapperState(env_state, stack), dataclasses.replace(timestep, obs=stack)
