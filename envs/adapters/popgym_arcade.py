"""POPGym Arcade (Wang et al. 2025), games of pixels with and without what must be remembered, as `JaxEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import EXPENSIVE_RESETS, load, raw_key, refusals, suite_rules
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, check_positive
from jaxrl.envs.trees import strong_types

_SUITE = "popgym_arcade"
# Up, down, left, right, confirm, in every game; AutoEncode declares four, but confirms with the fifth.
_ACTIONS = 5
# They look at their limit before they count the step.
_ONE_STEP_LATE = ("AutoEncode", "MineSweeper")


def names() -> Sequence[str]:
    return tuple(sorted(load("popgym_arcade.registration", _SUITE).REGISTERED_ENVIRONMENTS))


class PopgymArcade(JaxEnv):
    """A game of POPGym Arcade in its form without automatic reset.

    Games that have one flag for every end are truncated at their time limit and terminated by all else.

    Args:
      name: one of `names()`.
      partial_obs: hides what the agent has seen before, so that it must remember it.
      scale: pictures are shrunk by this factor, squares of pixels becoming their mean.
      kwargs: of the environment's class, such as `obs_size=256`.
    """

    def __init__(self, name: str, partial_obs: bool = False, scale: int = 1, **kwargs: Any):
        label = f"{_SUITE}:{name}"
        check_numbers(label, kwargs)
        self._scale = check_positive(f"{label}: scale", scale)
        game = getattr(load("popgym_arcade.environments", _SUITE), name)
        with refusals(label, kwargs, TypeError, KeyError):
            self._env = _with_constant_discount(game)(partial_obs=partial_obs, **kwargs)
            self._params = self._env.default_params
        # If a game has an `is_terminal` of its own, its `terminated` is set at every end, also at the limit.
        of_suite = [c for c in game.__mro__ if c.__module__.startswith("popgym_arcade.")]
        self._has_one_flag = any("is_terminal" in vars(c) for c in of_suite)
        with suite_rules():
            _, whole = jax.eval_shape(self._first, jax.random.key(0))
        height, width, channels = whole.shape
        if height % scale or width % scale:
            raise ValueError(f"{label}: scale (={scale}) must divide {height} and {width}")
        limit = getattr(self._env, "max_steps_in_episode", None) or self._env.max_episode_length
        self.spec = EnvSpec(
            name=changed_call(label, PopgymArcade, locals()),
            observation_space=Box.of(0, 255, (height // scale, width // scale, channels), np.uint8),
            action_space=Discrete(_ACTIONS),
            max_episode_steps=int(limit) + name.startswith(_ONE_STEP_LATE),
            reset_ratio=EXPENSIVE_RESETS,  # a reset draws a picture, as a step does
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, obs = self._first(key)
        return state, self._shrunk(obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        with suite_rules():
            obs, state, reward, done, info = self._env.step_env(raw_key(key), state, action, self._params)
        ended = jnp.asarray(done, bool)
        truncated = jnp.asarray(info["truncated"], bool)
        says_terminated = jnp.zeros((), bool) if self._has_one_flag else jnp.asarray(info["terminated"], bool)
        state, obs = strong_types((state, obs))
        return state, TimeStep(
            obs=self._shrunk(obs),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=ended & (says_terminated | ~truncated),
            truncated=ended & truncated,
        )

    def _first(self, key: jax.Array) -> tuple[Any, Any]:
        with suite_rules():
            obs, state = self._env.reset_env(raw_key(key), self._params)
        return strong_types((state, obs))

    def _shrunk(self, obs: jax.Array) -> jax.Array:
        if self._scale == 1:
            return obs
        height, width, channels = obs.shape
        squares = obs.reshape(
            height // self._scale, self._scale, width // self._scale, self._scale, channels
        ).astype(jnp.float32)
        return jnp.round(squares.mean(axis=(1, 3))).astype(jnp.uint8)


make = PopgymArcade


def _with_constant_discount(game: type) -> type:
    """The game's class with a constant discount, which the suite computes by a method of an older gymnax."""
    return type(game.__name__, (game,), {"discount": lambda self, state, params: jnp.ones(())})
