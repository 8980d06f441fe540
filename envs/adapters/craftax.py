"""Craftax and Craftax-Classic (Matthews et al. 2024) as `JaxEnv`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import EXPENSIVE_RESETS, load, numbers, raw_key, suite_rules
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, Space, TimeStep
from jaxrl.envs.names import LARGEST_INT32, changed_call, check_numbers, unknown
from jaxrl.envs.trees import strong_types

_NAMES = tuple(f"Craftax-{kind}-v1" for kind in "Classic-Pixels Classic-Symbolic Pixels Symbolic".split())
_OBSERVATIONS = ("whole", "parts")


def names() -> Sequence[str]:
    load("craftax.craftax_env", "craftax")
    return _NAMES


class Craftax(JaxEnv):
    """An environment of Craftax in its form without automatic reset.

    The suite has one flag for every end; here the end at `max_timesteps` is a truncation and any other a
    termination. It reports achievements in percent of episodes, as its papers do: at every step the values so
    far, so that an episode which a wrapper cuts off has them too.

    Args:
      name: one of `names()`.
      observation: "whole", as the suite has it; "parts" of a symbolic one is a dict of the `map`, an image
        [rows, columns, kinds] that convolutions take, and the `rest`: inventory, health, direction, light.
      kwargs: fields of its `EnvParams`.
    """

    def __init__(self, name: str, observation: str = "whole", **kwargs: Any):
        label = f"craftax:{name}"
        check_numbers(label, kwargs)
        if observation not in _OBSERVATIONS:
            raise unknown(f"observation of {label}", observation, _OBSERVATIONS)
        self._map_shape = _shape_of_map(label, name) if observation == "parts" else None
        module = load("craftax.craftax_env", "craftax")
        with suite_rules():
            self._env = module.make_craftax_env_from_name(name, auto_reset=False)
            params = self._env.default_params
        fields = {field.name for field in dataclasses.fields(params)}
        for key in kwargs.keys() - fields:
            raise unknown(f"argument of {label}", key, fields)
        self._params = params.replace(**kwargs)
        self._endless = self._params.replace(max_timesteps=LARGEST_INT32)
        # The suite multiplies achievements by its own flag of the end, which is then always up. Nothing else
        # of a step depends on it.
        self._over = self._params.replace(max_timesteps=0)
        with suite_rules():
            obs, info = jax.eval_shape(self._first_step, jax.random.key(0))
            actions = int(self._env.action_space(self._params).n)
        self.spec = EnvSpec(
            name=changed_call(label, Craftax, locals()),
            observation_space=_space_of(obs),
            action_space=Discrete(actions),
            max_episode_steps=int(self._params.max_timesteps),
            reports=tuple(InfoMetric(key, "last") for key in sorted(info)),
            reset_ratio=EXPENSIVE_RESETS,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with suite_rules():
            obs, state = self._env.reset_env(raw_key(key), self._params)
        state, obs = strong_types((state, obs))
        return state, self._in_parts(obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        with suite_rules():
            obs, state, reward, _, info = self._env.step_env(raw_key(key), state, action, self._over)
            terminated = self._env.is_terminal(state, self._endless)
        state, obs = strong_types((state, obs))
        return state, TimeStep(
            obs=self._in_parts(obs),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=state.timestep >= self._params.max_timesteps,
            # Achievements and the score so far.
            info={name: x for name, x in numbers(info).items() if name != "discount"},
        )

    def _in_parts(self, obs: jax.Array) -> Any:
        if self._map_shape is None:
            return obs
        cells = math.prod(self._map_shape)
        return {"map": obs[:cells].reshape(self._map_shape), "rest": obs[cells:]}

    def _first_step(self, key: jax.Array) -> tuple[Any, Any]:
        state, obs = self.reset(key)
        _, timestep = self.step(key, state, jnp.zeros((), jnp.int32))
        return obs, timestep.info


make = Craftax


def _shape_of_map(label: str, name: str) -> tuple[int, ...]:
    """[rows, columns, kinds] of the map, with which symbolic observations begin."""
    if "Symbolic" not in name:
        raise ValueError(f"{label}: observation 'parts' is of symbolic observations alone")
    package = "craftax_classic" if "Classic" in name else "craftax"
    module = load(f"craftax.{package}.envs.craftax_symbolic_env", "craftax")
    return tuple(module.get_map_obs_shape())


def _space_of(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple((key, _space_of(part)) for key, part in sorted(obs.items())))
    return Box.of(0.0, 1.0, obs.shape, np.dtype(obs.dtype).type)
