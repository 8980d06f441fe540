"""An environment and wrappers for tests, also imported by name as a user's own module."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl import ObservationWrapper, Wrapper
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep


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


class Whole(JaxEnv):
    """Observation (time, last action) in integers; the third step terminates, or truncates with action 2."""

    def __init__(self) -> None:
        box = Box.of(0, 3, (2,), jnp.int32)
        self.spec = EnvSpec("test:Whole", box, Discrete(3), reports=(InfoMetric("time", "max"),))

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2, jnp.int32)

    def step(self, key, state, action):
        time = state + 1
        obs = jnp.stack([time, action]).astype(jnp.int32)
        reward = action.astype(jnp.float32) - time.astype(jnp.float32) / 2
        over, cut = time == 3, action == 2
        return time, TimeStep(obs, reward, over & ~cut, over & cut, info={"time": time})


class Murmuring(JaxEnv):
    """8 steps, of which some say `now`, the largest in the middle; `flag` is true at the second and third."""

    def __init__(self) -> None:
        self.spec = EnvSpec("test:Murmuring", Box.of(0, 8, (1,)), Discrete(2))

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, key, state, action):
        time, nan = state + 1, jnp.nan
        now = jnp.array([nan, 1.0, 3.0, nan, nan, 2.0, nan, 2.0])[state]
        info = {"now": now, "flag": (time == 2) | (time == 3), "pair": jnp.zeros(2), "a b": now}
        nothing = jnp.zeros((), bool)
        return time, TimeStep(time.astype(jnp.float32)[None], jnp.ones(()), time == 8, nothing, info=info)


class Plus(ObservationWrapper):
    """A user's own wrapper of observations of any shape, which keeps whole numbers."""

    def __init__(self, env: JaxEnv):
        space = env.spec.observation_space
        super().__init__(env, Box.of(0, 100, space.shape, space.dtype))

    def observe(self, obs):
        return obs + jnp.arange(obs.shape[-1], dtype=obs.dtype)


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
    """The time that the environment tells."""
    return info["time"]


def halved(observation, action, reward, next_observation, info):
    return 0.5 * reward


def everything(observation, action, reward, next_observation, info, terminated, scale=1.0):
    """A reward that tells every component, and the frames, from each other."""
    seen, after = observation.astype(jnp.float32), next_observation.astype(jnp.float32)
    weights = jnp.arange(1, seen.shape[-1] + 1, dtype=jnp.float32)
    change = 3.0 * (weights * after).sum() - (weights * seen).sum() - jnp.where(terminated, 7.0, 0.0)
    return scale * reward + change + action.astype(jnp.float32)


class Chain(JaxEnv):
    """Places 0 to 3 in a row: action 0 ends with a reward of 1, action 1 leads on, at the end to one of 3.

    The observation is the place; 4 is where one has given up, 5 the goal.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec("test:Chain", Box.of(0.0, 5.0, (1,)), Discrete(2))

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, key, state, action):
        stops, arrives = action == 0, (action == 1) & (state == 3)
        place = jnp.where(stops, 4, jnp.where(arrives, 5, state + 1)).astype(jnp.int32)
        reward = jnp.where(stops, 1.0, jnp.where(arrives, 3.0, 0.0))
        over = stops | arrives
        return place, TimeStep(place.astype(jnp.float32)[None], reward, over, jnp.zeros((), bool))


def misleading(observation, scale=1.0):
    """A potential that is largest where one has given up, and falls on the way to the goal."""
    return scale * jnp.array([5.0, 3.0, 2.0, 1.0, 10.0, -4.0])[observation[0].astype(jnp.int32)]


def total(observation, scale=1.0):
    return scale * (observation.astype(jnp.float32).sum() + 1.0)


def misled(observation, action, reward, next_observation, info, terminated):
    """The same as a function of all; False where it ends makes it wrong."""
    after = jnp.where(terminated, 0.0, misleading(next_observation))
    return reward + 0.9 * after - misleading(observation)


def untold(observation, action, reward, next_observation, info):
    return misled(observation, action, reward, next_observation, info, False)


def pair(observation):
    return observation[:2]
