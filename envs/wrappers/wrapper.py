"""What wrappers share."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from envs.base import Box, JaxEnv, Space, TimeStep
from envs.pictures import CannotRender


class Wrapper(JaxEnv):
    """Passes everything on to `env`; subclasses change some of it and adjust `spec`."""

    def __init__(self, env: JaxEnv):
        self.env = env
        self.spec = env.spec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return self.env.reset(key)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        return self.env.step(key, state, action)

    def action_mask(self, state: Any) -> jax.Array:
        return self.env.action_mask(state)

    def inner(self, state: Any) -> Any:
        """The wrapped environment's part of `state`; overridden by wrappers that keep their own."""
        return state

    def render(self, state: Any) -> np.ndarray:
        """A picture, uint8[height, width, 3], where the environment has a `render`; else CannotRender."""
        if not hasattr(self.env, "render"):
            raise CannotRender(f"{self.spec.name} cannot be drawn: it has no `render`")
        found: np.ndarray = self.env.render(self.inner(state))
        return found


class ObservationWrapper(Wrapper):
    """Replaces every observation by a function of it, `observe`."""

    def __init__(self, env: JaxEnv, observation_space: Space):
        super().__init__(env)
        self.spec = dataclasses.replace(env.spec, observation_space=observation_space)

    def observe(self, obs: Any) -> jax.Array:
        """Returns the new observation, an element of `spec.observation_space`."""
        raise NotImplementedError

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, obs = self.env.reset(key)
        return state, self.observe(obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        return state, dataclasses.replace(timestep, obs=self.observe(timestep.obs))


def require_box(wrapper: str, env: JaxEnv, ndim: int | None = None) -> Box:
    """Returns the observation space of `env` if it is a Box (of `ndim` dimensions); ValueError otherwise."""
    space = env.spec.observation_space
    if not isinstance(space, Box) or (ndim is not None and len(space.shape) != ndim):
        dimensions = "" if ndim is None else f" of {ndim} dimension(s)"
        raise ValueError(
            f"wrapper {wrapper} needs a Box observation{dimensions}; {env.spec.name} has {describe(space)}"
        )
    return space


def describe(space: Space) -> str:
    """A short text for error messages; a Box without its many bounds."""
    return f"Box of shape {space.shape}" if isinstance(space, Box) else str(space)
