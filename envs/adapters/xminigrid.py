"""XLand-MiniGrid (Nikulin et al. 2024) as `JaxEnv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters import xminigrid_rulesets
from jaxrl.envs.adapters.suite import EXPENSIVE_RESETS, check_arguments, load, raw_key, suite_rules
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import format_call, unknown
from jaxrl.envs.trees import strong_types

# Of tiles and of colours. Networks scale bytes by the bound of their space.
_LARGEST_CODE = 14
_SIZES = ("height", "width")
_PARAMS = (*_SIZES, "max_steps", "ruleset", "view_size")


def names() -> Sequence[str]:
    """The environments that xminigrid has registered."""
    return tuple(load("xminigrid", "xminigrid").registered_environments())


def make(name: str, ruleset: str | None = None, **kwargs: Any) -> XMiniGrid:
    """Makes one of `names()`.

    Args:
      name: of the environment.
      ruleset: of an environment of XLand, which has no goal without one: `FILE:INDEX`, or `NAME:INDEX` of a
        benchmark that the suite has downloaded.
      kwargs: `height`, `width`, `view_size` and `max_steps`.
    """
    return XMiniGrid(name, ruleset, **kwargs)


class XMiniGrid(JaxEnv):
    """An environment of XLand-MiniGrid, which resets only by its wrappers.

    Observations are (tile, colour) of each cell that the agent sees. `info["success"]` is whether the goal
    was reached with a reward.
    """

    def __init__(self, name: str, ruleset: str | None, **kwargs: Any):
        label = f"xminigrid:{name}"
        check_arguments(label, kwargs)
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
            if "ruleset" in settings:
                settings["ruleset"] = _ruleset(label, ruleset, types.RuleSet)
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
            name=format_call(label, kwargs if ruleset is None else {"ruleset": ruleset} | kwargs),
            observation_space=Box.of(0, _LARGEST_CODE, obs.shape, np.dtype(obs.dtype).type),
            action_space=Discrete(int(self._env.num_actions(self._params))),
            max_episode_steps=int(self._params.max_steps),
            reports=(InfoMetric("success", "max"),),
            reset_ratio=EXPENSIVE_RESETS,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with suite_rules():
            timestep = self._env.reset(self._params, raw_key(key))
        return strong_types((timestep.state, timestep.observation))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        before = self._timestep(
            state=state,
            step_type=self._mid,
            reward=jnp.zeros(()),
            discount=jnp.ones(()),
            observation=jnp.zeros(()),
        )
        with suite_rules():
            after = self._env.step(self._params, before, action)
            terminated = after.discount == 0
            truncated = after.state.step_num >= self._params.max_steps
        found = (after.state, after.observation, jnp.asarray(after.reward, jnp.float32), terminated)
        state, obs, reward, terminated = strong_types(found)
        return state, TimeStep(
            obs, reward, terminated, truncated, info={"success": terminated & (reward > 0)}
        )


def _ruleset(label: str, given: str | None, kind: Any) -> Any:
    if given is None:
        raise ValueError(
            f"{label}: has no goal and would never reward; ruleset must be "
            f"{xminigrid_rulesets.FORM}, as in {label}(ruleset='trivial-21k:0')"
        )
    found = xminigrid_rulesets.read(label, given)
    return kind(goal=found["goals"], rules=found["rules"], init_tiles=found["init_tiles"])
