"""An environment and wrappers for tests, also imported by name as a user's own module."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl import ObservationWrapper, Wrapper


class Counting(JaxEnv):
    """Observation (number, time); of 2 to 4 steps by the number, terminated where that is even, else cut off.

    The reward is the number plus a tenth of the time, plus the action.
    """

    def __init__(self) -> None:
        reports = (InfoMetric("time", "max"), InfoMetric("one", "sum"), InfoMetric("number", "last"))
        self.spec = EnvSpec(
            "test:Counting", Box.of(0.0, 12.0, (2,)), Discrete(3), max_episode_steps=4, reports=reports
        )

    def reset(self, key):
        number = jax.random.randint(key, (), 0, 12)
        return (number, jnp.zeros((), jnp.int32)), jnp.stack([number, 0]).astype(jnp.float32)

    def step(self, key, state, action):
        number, time = state[0], state[1] + 1
        over = time >= 2 + number % 3
        even = number % 2 == 0
        step = TimeStep(
            obs=jnp.stack([number, time]).astype(jnp.float32),
            reward=(number + action).astype(jnp.float32) + time.astype(jnp.float32) / 10,
            terminated=over & even,
            truncated=over & ~even,
            info={"time": time, "one": jnp.ones((), jnp.float32), "number": number},
        )
        return (number, time), step


class Negative(ObservationWrapper):
    """A user's own wrapper of observations."""

    def __init__(self, env: JaxEnv, factor: float = -1.0):
        space = env.spec.observation_space
        super().__init__(env, Box.of(-12.0 * abs(factor), 12.0 * abs(factor), space.shape))
        self._factor = factor

    def observe(self, obs):
        return obs * self._factor


class Impatient(Wrapper):
    """A user's own wrapper of steps: a Python number as reward, and no episode longer than one step."""

    def step(self, key, state, action):
        state, timestep = self.env.step(key, state, action)
        return state, dataclasses.replace(timestep, reward=5, truncated=jnp.ones((), bool))


class Broken(Wrapper):
    """Returns observations of another shape than it declares."""

    def reset(self, key):
        state, obs = self.env.reset(key)
        return state, obs[:1]


def potential(obs, action, reward, next_obs, info, scale=1.0):
    return (
        reward + scale * (next_obs[1] - obs[1]) + jnp.asarray(info["number"], jnp.float32) * 0 + action * 0.0
    )


def two_numbers(obs, action, reward, next_obs, info):
    return next_obs


def told(observation, action, reward, next_observation, info, scale=1.0):
    """A reward of all that happened, for environments on the host."""
    return reward + scale * action + 100 * observation[-1] + 1000 * next_observation[-1]


def timed(observation, action, reward, next_observation, info):
    """What the environment tells as its time."""
    return info["time"]
