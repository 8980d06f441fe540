"""`report` and `limit_cost`: more reported of each episode."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import JaxEnv, TimeStep
from jaxrl.envs.reports import InfoMetric, set_entry, with_report
from jaxrl.envs.wrappers.wrapper import Wrapper, require_box


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
