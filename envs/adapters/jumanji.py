"""Jumanji (Bonnet et al. 2024), combinatorial problems and games, as `JaxEnv`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import load, numbers, raw_key, refusals, suite_rules
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, MultiDiscrete, Space, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, unknown
from jaxrl.envs.trees import strong_types

_MASK = "action_mask"


def names() -> Sequence[str]:
    return tuple(sorted(load("jumanji", "jumanji").registered_environments()))


class Jumanji(JaxEnv):
    """An environment of Jumanji, which resets only by its wrappers.

    Observations are dicts of arrays; `action_mask` among them becomes the mask. Several actions that are
    masked together, such as row and column, become one: Discrete(rows * columns). What is `extras` there is
    reported with its last value. The suite's discount decides if an end is a termination or a truncation;
    most of its environments call the end at their time limit a termination.

    Args:
      name: one of `names()`.
      keys: the parts of its observations to keep; all if empty. Parts within parts are `outer.inner`.
      kwargs: of the environment's class.
    """

    def __init__(self, name: str, keys: Sequence[str] = (), **kwargs: Any):
        label = f"jumanji:{name}"
        check_numbers(label, kwargs)
        package = load("jumanji", "jumanji")
        self._keys = keys = tuple(keys)
        with refusals(label, kwargs, TypeError, ValueError, OSError):
            self._env = package.make(name, **kwargs)
            first, later = jax.eval_shape(self._first_steps, jax.random.key(0))
        if later.reward.shape != ():
            raise ValueError(
                f"{label} is for several agents: its reward is float32{list(later.reward.shape)}"
            )
        parts = _parts(first.observation)
        for key in keys:
            if key not in parts or key == _MASK:
                raise unknown(f"observation of {label}", key, parts.keys() - {_MASK})
        mask = parts.pop(_MASK, None)
        self._nvec = _nvec(self._env.action_spec)
        self._is_joint = mask is not None and mask.shape == self._nvec and len(self._nvec) > 1
        size = math.prod(self._nvec) if self._is_joint else sum(self._nvec)
        if mask is not None and math.prod(mask.shape) != size:
            raise ValueError(
                f"{label} has an action mask that is not supported: {mask.shape} of {self._nvec}"
            )
        limit = getattr(self._env, "time_limit", None)
        kept = sorted(keys or parts)
        spaces = {key: _part_space(key, parts[key], self._env.observation_spec) for key in kept}
        self.spec = EnvSpec(
            name=changed_call(label, Jumanji, locals()),
            observation_space=spaces[""] if "" in spaces else Dict(tuple(spaces.items())),
            action_space=self._action_space(),
            max_episode_steps=int(limit) if limit else None,
            has_action_mask=mask is not None,
            reports=tuple(InfoMetric(key, "last") for key in sorted(later.extras)),
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with suite_rules():
            state, first = self._env.reset(raw_key(key))
            kept = self._select_parts(first.observation)
        return strong_types(((state, self._mask(first.observation)), kept))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        if self._is_joint:
            action = jnp.stack(jnp.unravel_index(action, self._nvec)).astype(jnp.int32)
        with suite_rules():
            env_state, found = self._env.step(state[0], action)
            last = found.last()
            cut = found.discount != 0
            timestep = TimeStep(
                obs=self._select_parts(found.observation),
                reward=jnp.asarray(found.reward, jnp.float32),
                terminated=last & ~cut,
                truncated=last & cut,
                info=numbers(found.extras or {}),
            )
        return strong_types(((env_state, self._mask(found.observation)), timestep))

    def action_mask(self, state: Any) -> jax.Array:
        mask: jax.Array = state[1]
        # After an end no action follows, and none may be allowed.
        return mask | ~mask.any()

    def _mask(self, observation: Any) -> Any:
        found = getattr(observation, _MASK, None)
        return None if found is None else found.reshape(-1).astype(bool)

    def _select_parts(self, observation: Any) -> Any:
        parts = _parts(observation)
        names = self._keys or [name for name in parts if name != _MASK]
        kept = {name: _plain(parts[name]) for name in sorted(names)}
        return kept[""] if "" in parts else kept

    def _first_steps(self, key: jax.Array) -> tuple[Any, Any]:
        state, first = self._env.reset(raw_key(key))
        _, later = self._env.step(state, self._env.action_spec.generate_value())
        later.extras = numbers(later.extras or {})
        return first, later

    def _action_space(self) -> Space:
        spec = self._env.action_spec
        if not self._nvec:
            return Box.of(np.asarray(spec.minimum), np.asarray(spec.maximum), spec.shape)
        if len(self._nvec) == 1 and not spec.shape:
            return Discrete(self._nvec[0])
        return Discrete(math.prod(self._nvec)) if self._is_joint else MultiDiscrete(self._nvec)


make = Jumanji


def _nvec(spec: Any) -> tuple[int, ...]:
    """The number of values of each component of an action; () if they are not integers."""
    if not hasattr(spec, "num_values"):
        return ()
    return tuple(int(n) for n in np.reshape(spec.num_values, -1))


def _parts(observation: Any, prefix: str = "") -> dict[str, Any]:
    """Arrays by name; {"": array} of an observation that is one array."""
    if hasattr(observation, "_asdict"):
        fields = observation._asdict()
    elif hasattr(observation, "__dataclass_fields__"):
        fields = {name: getattr(observation, name) for name in observation.__dataclass_fields__}
    else:
        return {prefix: observation}
    return {
        name: part
        for key, value in fields.items()
        for name, part in _parts(value, f"{prefix}.{key}" if prefix else key).items()
    }


def _plain(x: Any) -> jax.Array:
    x = jnp.asarray(x)
    # Not uint8, which networks take for the brightness of a picture and divide by 255.
    return x.astype(jnp.float32) if x.dtype == bool else x


def _part_space(name: str, part: Any, spec: Any) -> Space:
    """The space of one part, with the bounds that its spec declares, if it does."""
    for key in filter(None, name.split(".")):
        spec = spec[key]
    if part.dtype == bool:
        return Box.of(0, 1, part.shape)
    low = getattr(spec, "minimum", -math.inf)
    high = getattr(spec, "maximum", math.inf)
    return Box.of(np.asarray(low), np.asarray(high), part.shape, np.dtype(part.dtype).type)
