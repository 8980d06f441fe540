"""`time_limit` and `optimistic_resets`: where episodes end, and how the next ones start."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import JaxEnv, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.trees import TimedState
from jaxrl.envs.wrappers.wrapper import Wrapper


class TimeLimit(Wrapper):
    """Truncates an episode after `steps` steps, in addition to any limit of the environment."""

    for_agents = True

    def __init__(self, env: JaxEnv, steps: int):
        super().__init__(env)
        # Steps are counted in int32.
        self._steps = min(check_positive("wrapper time_limit: steps", steps, sys.maxsize), 2**31 - 1)
        limit = min(steps, env.spec.max_episode_steps or steps)
        self.spec = dataclasses.replace(env.spec, max_episode_steps=limit)

    def reset(self, key: jax.Array, *task: Any) -> tuple[TimedState, Any]:
        state, obs = self.env.reset(key, *task)
        return TimedState(state, jnp.zeros((), jnp.int32)), obs

    def step(self, key: jax.Array, state: TimedState, action: jax.Array) -> tuple[TimedState, TimeStep]:
        env_state, timestep = self.env.step(key, state.env, action)
        time = state.time + 1
        timestep = dataclasses.replace(timestep, truncated=timestep.truncated | (time >= self._steps))
        return TimedState(env_state, time), timestep

    def inner(self, state: Any) -> Any:
        return state.env


class OptimisticResets(Wrapper):
    """Makes a `VectorEnv` of B environments compute B / `ratio` resets at a time.

    Few episodes end in the same step, so most of B resets would be thrown away. If more have ended than a
    round resets, further rounds follow: each environment starts with its own key in the state that it would
    start in without the wrapper, and never in another's (unlike Craftax's wrapper of this name, whose
    environments share a state then). About the length of an episode in steps is a good ratio. `ratio=1`
    computes all at once, which is faster if a reset is cheap.
    """

    for_agents = True

    def __init__(self, env: JaxEnv, ratio: int = 64):
        super().__init__(env)
        ratio = check_positive("wrapper optimistic_resets: ratio", ratio)
        self.spec = dataclasses.replace(env.spec, reset_ratio=ratio)
