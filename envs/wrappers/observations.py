"""Observations reshaped, selected, stacked, one-hot, hidden or noisy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, JaxEnv, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.spaces import check_count
from jaxrl.envs.wrappers.wrapper import (
    ObservationWrapper,
    ObservedSteps,
    StatefulWrapper,
    WrapperState,
    check_indices,
    check_number,
    describe,
    require_box,
    require_channels_last,
)

_MOST_FRAMES = 128
# An environment may split its key, and `split(key, n)[i]` equals `fold_in(key, i)`: far above any `n`.
_NOISE = 0x4E4F4953
_ONE_HOT = "wrapper one_hot_observation"
_MOST_VALUES = 2**16


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
            what = f"needs an observation with axes; {env.spec.name} has a number"
            raise ValueError(f"wrapper frame_stack {what}")
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


class FlattenObservation(ObservationWrapper):
    """Reshapes a Box observation to one dimension, in C order; the dtype stays."""

    def __init__(self, env: JaxEnv):
        space = require_box("flatten_observation", env)
        super().__init__(env, dataclasses.replace(space, shape=(math.prod(space.shape),)))

    def observe(self, obs: jax.Array) -> jax.Array:
        return obs.reshape(-1)


class SelectObservation(ObservationWrapper):
    """Keeps the components `indices` of a vector observation, in that order.

    Hiding velocities, as in `gymnax:CartPole-v1` with `indices=(0, 2)`, turns a control task into one
    that needs memory.
    """

    def __init__(self, env: JaxEnv, indices: Sequence[int]):
        space = require_box("select_observation", env, ndim=1)
        size = space.shape[0]
        check_indices("select_observation", indices, size)
        self._indices = np.array(indices)
        low, high = (tuple(bound[i] for i in indices) for bound in (space.low, space.high))
        super().__init__(env, Box(low, high, (len(indices),), space.dtype))

    def observe(self, obs: jax.Array) -> jax.Array:
        return obs[self._indices]


class OneHotObservation(ObservationWrapper):
    """Turns integers into float32 vectors of zeros and a one.

    Args:
      env: the environment. Discrete(n) becomes a vector of n components; of an array of integers each becomes
        `values` components, one after the other along the last axis: int[..., C] to float32[..., C * values].
      values: of an array, how many values there are, from 0. A larger one becomes zeros.
    """

    def __init__(self, env: JaxEnv, values: int | None = None):
        space = env.spec.observation_space
        if isinstance(space, Discrete):
            if values is not None:
                raise ValueError(f"{_ONE_HOT}: values is for arrays; this observation is Discrete")
            self._n = space.n
            self._shape: tuple[int, ...] = (space.n,)
        elif isinstance(space, Box) and np.issubdtype(space.dtype, np.integer) and space.shape:
            if values is None:
                raise ValueError(f"{_ONE_HOT} needs values=N for an array: how many values there are, from 0")
            require_channels_last("one_hot_observation", env)
            check_count(f"{_ONE_HOT}: values", values, _MOST_VALUES)
            self._n = values
            self._shape = (*space.shape[:-1], space.shape[-1] * values)
        else:
            what = f"an array of integers; {env.spec.name} has {describe(space)}"
            raise ValueError(f"{_ONE_HOT} needs a Discrete observation or {what}")
        super().__init__(env, Box.of(0.0, 1.0, self._shape))

    def observe(self, obs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(obs, self._n, dtype=jnp.float32).reshape(self._shape)


class MaskObservation(ObservationWrapper):
    """Sets the components `indices` of a vector observation to `value`; its shape stays."""

    def __init__(self, env: JaxEnv, indices: Sequence[int], value: float = 0.0):
        space = require_box("mask_observation", env, ndim=1)
        size = space.shape[0]
        check_indices("mask_observation", indices, size)
        number = check_number("wrapper mask_observation: value", value)
        self._hidden = np.isin(np.arange(size), indices)
        self._value = np.asarray(number, space.dtype)
        low, high = (np.where(self._hidden, number, bound) for bound in (space.low, space.high))
        super().__init__(env, Box.of(low, high, space.shape, space.dtype))

    def observe(self, obs: jax.Array) -> jax.Array:
        return jnp.where(self._hidden, self._value, obs)


class NoisyObservation(ObservedSteps):
    """Adds normal noise of standard deviation `std` to every component of a Box observation of floats.

    With probability `hidden` the whole observation is 0 instead (Hausknecht and Stone 2015, "flickering").
    """

    def __init__(self, env: JaxEnv, std: float = 0.0, hidden: float = 0.0):
        super().__init__(env)
        space = require_box("noisy_observation", env)
        self._std = check_number("wrapper noisy_observation: std", std)
        self._hidden = check_number("wrapper noisy_observation: hidden", hidden)
        if std < 0 or not 0 <= hidden <= 1 or not (std or hidden):
            raise ValueError(
                f"wrapper noisy_observation: std (={std!r}) must be at least 0, hidden (={hidden!r}) lie in "
                "[0, 1], and one of them be above 0"
            )
        if std and not np.issubdtype(space.dtype, np.floating):
            raise ValueError(
                f"wrapper noisy_observation: std needs observations of floats, not {space.dtype}"
            )
        if std:
            space = Box.of(-math.inf, math.inf, space.shape, space.dtype)
        else:
            low, high = (np.reshape(x, space.shape) for x in (space.low, space.high))
            space = Box.of(np.minimum(low, 0), np.maximum(high, 0), space.shape, space.dtype)
        self.spec = dataclasses.replace(env.spec, observation_space=space, stacked_frames=1)
        self._draws = _NOISE + _count_inside(env)

    def see(self, obs: jax.Array, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> jax.Array:
        noise_key, hide_key = jax.random.split(jax.random.fold_in(key, self._draws))
        if self._std:
            noise = jax.random.normal(noise_key, obs.shape, obs.dtype)
            obs = obs + jnp.asarray(self._std, obs.dtype) * noise
        if self._hidden:
            obs = jnp.where(jax.random.bernoulli(hide_key, self._hidden), jnp.zeros_like(obs), obs)
        return obs


def _count_inside(env: JaxEnv) -> int:
    """The number of wrappers of noise inside: they have the same key, and must not sample the same noise."""
    inner = getattr(env, "env", None)
    return 0 if inner is None else isinstance(env, NoisyObservation) + _count_inside(inner)
