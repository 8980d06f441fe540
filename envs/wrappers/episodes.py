"""`time_limit`, `optimistic_resets`, `report` and `limit_cost`: ends, starts and reports of episodes."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import JaxEnv, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.reports import InfoMetric, set_entry, with_report
from jaxrl.envs.trees import TimedState
from jaxrl.envs.wrappers.wrapper import Wrapper, require_box


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


class ReportInfo(Wrapper):
    """Declares that `info[key]` is reported of every episode, see `InfoMetric`; changes nothing."""

    for_agents = True

    def __init__(self, env: JaxEnv, key: str, per_episode: str = "last"):
        super().__init__(env)
        try:
            self.report = InfoMetric(key, per_episode)
        except ValueError as error:
            raise ValueError(f"wrapper report: {error}") from error
        self.spec = dataclasses.replace(env.spec, reports=with_report(env.spec.reports, self.report))


class LimitCost(Wrapper):
    """Adds `info["cost"]`, 1 where |obs[index]| of a vector observation is more than `bound`, else 0.

    Nothing that the policy sees changes: it is to know how safely a task was solved. Training reports the sum
    of an episode as `env/cost`.
    """

    def __init__(self, env: JaxEnv, index: int, bound: float):
        super().__init__(env)
        (size,) = require_box("limit_cost", env, ndim=1).shape
        if not isinstance(index, int) or not 0 <= index < size:
            raise ValueError(f"wrapper limit_cost: index (={index!r}) must lie in [0, {size - 1}]")
        if not isinstance(bound, int | float) or bound < 0:
            raise ValueError(f"wrapper limit_cost: bound (={bound!r}) must be a number of at least 0")
        self._index = index
        self._bound = float(bound)
        self.spec = dataclasses.replace(
            env.spec, reports=with_report(env.spec.reports, InfoMetric("cost", "sum"))
        )

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        cost = (jnp.abs(timestep.obs[self._index]) > self._bound).astype(jnp.float32)
        return state, dataclasses.replace(timestep, info=set_entry(timestep.info, "cost", cost))
