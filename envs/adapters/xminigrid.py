"""XLand-MiniGrid (Nikulin et al. 2024) as `JaxEnv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters import xminigrid_rulesets
from jaxrl.envs.adapters.suite import EXPENSIVE_RESETS, load, raw_key, suite_rules
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, unknown
from jaxrl.envs.trees import strong_types

# Of tiles and of colours. Networks scale bytes by the bound of their space.
_LARGEST_CODE = 14
_SIZES = ("height", "width")
_TASK = "ruleset"
_ANY = -1  # of a task
# The suite splits the key of a reset, and `split(key, n)[i]` equals `fold_in(key, i)`: far above any `n`.
_DRAW = 0x52554C45
_PARAMS = (*_SIZES, "max_steps", "ruleset", "view_size")


def names() -> Sequence[str]:
    return tuple(load("xminigrid", "xminigrid").registered_environments())


class XMiniGrid(JaxEnv):
    """An environment of XLand-MiniGrid, which resets only by its wrappers.

    Observations are (tile, colour) of each cell that the agent sees. `info["success"]` is whether the goal
    was reached with a reward. The task, if there are several rulesets, is the index of one, or -1: sampled.

    Args:
      name: one of `names()`.
      ruleset: of an environment of XLand, which has no goal without one: `FILE:INDEX`, `NAME:INDEX` of a
        benchmark that the suite has downloaded, or `objects:KIND:INDEX` (`xminigrid_rulesets`). Without an
        index, or with `FIRST-LAST`, the rulesets are tasks, and each episode samples one.
      kwargs: `height`, `width`, `view_size` and `max_steps`.
    """

    def __init__(self, name: str, ruleset: str | None = None, **kwargs: Any):
        label = f"xminigrid:{name}"
        check_numbers(label, kwargs)
        for key in kwargs.keys() - set(_PARAMS):
            raise unknown(f"argument of {label}", key, _PARAMS)
        package = load("xminigrid", "xminigrid")
        types = load("xminigrid.types", "xminigrid")
        with suite_rules():
            self._env, self._params = package.make(name)
            settings = {x.name: getattr(self._params, x.name) for x in dataclasses.fields(self._params)}
            if kwargs.keys() & set(_SIZES):
                del settings["max_steps"]  # its default follows from the size
            settings |= kwargs
            self._rulesets: Any = None  # [n, ...] of several
            self._task_space: Dict | None = None
            if "ruleset" in settings:
                if ruleset is None:
                    raise ValueError(
                        f"{label}: has no goal and would never reward; ruleset must be "
                        f"{xminigrid_rulesets.FORM}, as in {label}(ruleset='trivial-21k:0')"
                    )
                rulesets = xminigrid_rulesets.read(label, ruleset)
                table = types.RuleSet(rulesets.goals, rulesets.rules, rulesets.init_tiles)
                settings["ruleset"] = jax.tree.map(lambda x: x[0], table)
                if not rulesets.is_single:
                    self._rulesets = table
                    self._num_rulesets = len(rulesets.goals)
                    numbers = Box.of(_ANY, self._num_rulesets - 1, (), np.int32)
                    self._task_space = Dict(((_TASK, numbers),))
            elif ruleset is not None:
                raise ValueError(
                    f"{label}: ruleset (={ruleset!r}) is for XLand-MiniGrid; this has a goal of its own"
                )
            self._params = self._env.default_params(**settings)
        self._timestep = types.TimeStep
        self._mid = types.StepType.MID
        with suite_rules():
            _, obs = jax.eval_shape(self.reset, jax.random.key(0))
        self.spec = EnvSpec(
            name=changed_call(label, XMiniGrid, locals()),
            observation_space=Box.of(0, _LARGEST_CODE, obs.shape, np.dtype(obs.dtype).type),
            action_space=Discrete(int(self._env.num_actions(self._params))),
            max_episode_steps=int(self._params.max_steps),
            reports=(InfoMetric("success", "max"),),
            reset_ratio=EXPENSIVE_RESETS,
            task_space=self._task_space,
        )

    @property
    def default_task(self) -> dict[str, jax.Array]:
        """A ruleset sampled at the reset."""
        return {_TASK: jnp.asarray(_ANY, jnp.int32)}

    def draw_task(self, key: jax.Array) -> dict[str, jax.Array]:
        return {_TASK: jax.random.randint(key, (), 0, self._num_rulesets)}

    @property
    def level_pool(self) -> dict[str, np.ndarray] | None:
        """All rulesets, if there are several."""
        return None if self._rulesets is None else {_TASK: np.arange(self._num_rulesets, dtype=np.int32)}

    def reset(self, key: jax.Array, task: Mapping[str, jax.Array] | None = None) -> tuple[Any, Any]:
        params = self._params
        if self._rulesets is not None:
            drawn = self.draw_task(jax.random.fold_in(key, _DRAW))[_TASK]
            given = drawn if task is None else task[_TASK]
            index = jnp.where(given == _ANY, drawn, given)
            chosen = jax.tree.map(lambda x: jnp.asarray(x)[index], self._rulesets)
            params = params.replace(ruleset=chosen)
        with suite_rules():
            timestep = self._env.reset(params, raw_key(key))
        return strong_types((timestep.state, timestep.observation))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        nothing = {"reward": jnp.zeros(()), "discount": jnp.ones(()), "observation": jnp.zeros(())}
        before = self._timestep(state=state, step_type=self._mid, **nothing)
        with suite_rules():
            after = self._env.step(self._params, before, action)
            terminated = after.discount == 0
            truncated = after.state.step_num >= self._params.max_steps
        found = (after.state, after.observation, jnp.asarray(after.reward, jnp.float32), terminated)
        state, obs, reward, terminated = strong_types(found)
        return state, TimeStep(
            obs, reward, terminated, truncated, info={"success": terminated & (reward > 0)}
        )


make = XMiniGrid
