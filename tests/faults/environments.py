"""Environments that go wrong; named `tests.faults.environments:Class(argument=value)`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep

VALUES = {"nan": jnp.nan, "inf": jnp.inf}


class Faulty(JaxEnv):
    """Sound, but for a `value` in the reward or the observation of step `step` of an episode.

    Episodes last `length` steps. The fault comes in a share `chance` of the episodes, drawn from the key.
    """

    def __init__(
        self, where: str = "reward", value: str = "nan", step: int = 40, chance: float = 1.0, length: int = 64
    ) -> None:
        self._where, self._value, self._step = where, VALUES[value], step
        self._chance, self._length = chance, length
        self.spec = EnvSpec("Faulty", Box.of(-jnp.inf, jnp.inf, (2,)), Discrete(2))

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        bad = (time == self._step) & jax.random.bernoulli(key, self._chance)
        obs = jnp.stack([time / self._length, jnp.float32(action)])
        reward = jnp.float32(action) + jax.random.normal(key)
        if self._where == "reward":
            reward = jnp.where(bad, self._value, reward)
        else:
            obs = jnp.where(bad, self._value, obs)
        return time, TimeStep(obs, reward, jnp.zeros((), bool), time == self._length)


class Stuck(Faulty):
    """Allows nothing at step `step` of an episode."""

    def __init__(self, step: int = 40, length: int = 64) -> None:
        super().__init__(step=step, chance=0.0, length=length)
        self.spec = dataclasses.replace(self.spec, name="Stuck", has_action_mask=True)

    def action_mask(self, state: Any) -> jax.Array:
        return jnp.full(2, state != self._step)
