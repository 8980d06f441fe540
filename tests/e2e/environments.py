"""Environments as a user would write them, in a module of their own; named `tests.e2e.environments:Class`."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.native.probe import OneStepProbe


@flax.struct.dataclass
class Episode:
    """int32[] steps taken, and int32[] steps this episode lasts."""

    time: jax.Array
    length: jax.Array


class ShortOrLong(JaxEnv):
    """Half of the episodes last 1 step and return 0, the other half `long` steps and return `long`."""

    def __init__(self, long: int = 40) -> None:
        self._long = long
        self.spec = EnvSpec("ShortOrLong", Box.of(0.0, 1.0, (1,)), Discrete(2), max_episode_steps=long)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        length = jnp.where(jax.random.bernoulli(key), self._long, 1)
        return Episode(jnp.zeros((), jnp.int32), length), jnp.zeros(1)

    def step(self, key: jax.Array, state: Episode, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state.time + 1
        reward = jnp.where(state.length > 1, 1.0, 0.0)
        done = time >= state.length
        return Episode(time, state.length), TimeStep(jnp.zeros(1), reward, done, jnp.zeros((), bool))


class FarActions(OneStepProbe):
    """`ProbeContinuous` with other bounds: the best action is half of `reach` above or below `middle`."""

    def __init__(self, low: float | None, high: float | None, middle: float, reach: float) -> None:
        bounds = (-jnp.inf if low is None else low, jnp.inf if high is None else high)
        self.action_space = Box.of(*bounds, (1,))
        self._middle, self._reach = middle, reach
        super().__init__()

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return -jnp.sum(((action - self._middle) / self._reach - obs / 2) ** 2)


class Echo(JaxEnv):
    """Pays the action, 0 to 9, and shows the constant 5; terminates after `length` steps, or never with 0."""

    def __init__(self, length: int = 3, limit: int = 0) -> None:
        self._length = length
        self.spec = EnvSpec("Echo", Box.of(0.0, 10.0, (1,)), Discrete(10), max_episode_steps=limit or None)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.full(1, 5.0)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        reward = action.astype(jnp.float32)
        return time, TimeStep(jnp.full(1, 5.0), reward, time == self._length, jnp.zeros((), bool))


class ChannelsFirst(JaxEnv):
    """Shows noise: pictures of floats with channels first, and stacks of frames of bytes. Ends at once."""

    def __init__(self) -> None:
        eye = Box.of(-1.0, 1.0, (3, 6, 5))
        past = Box.of(0, 255, (2, 6, 5, 3), np.uint8)
        self.spec = EnvSpec("ChannelsFirst", Dict((("eye", eye), ("past", past))), Discrete(3), 1)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        eye = jax.random.uniform(key, (3, 6, 5), minval=-1.0)
        past = jax.random.randint(key, (2, 6, 5, 3), 0, 256).astype(jnp.uint8)
        return jnp.zeros(()), {"eye": eye, "past": past}

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        _, obs = self.reset(key)
        return state, TimeStep(obs, jnp.zeros(()), jnp.ones((), bool), jnp.zeros((), bool))


class MaskedParts(JaxEnv):
    """Actions of two components, (3, 2), of which everything is allowed; ends at once."""

    def __init__(self) -> None:
        space = MultiDiscrete((3, 2))
        self.spec = EnvSpec("MaskedParts", Box.of(0.0, 1.0, (2,)), space, 1, has_action_mask=True)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return jnp.zeros(()), jax.random.uniform(key, (2,))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        _, obs = self.reset(key)
        return state, TimeStep(obs, jnp.zeros(()), jnp.ones((), bool), jnp.zeros((), bool))

    def action_mask(self, state: Any) -> jax.Array:
        return jnp.ones(5, bool)
