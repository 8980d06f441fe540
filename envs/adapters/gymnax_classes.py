"""Environments of a user with gymnax's API, `gymnax:path.to.module:Class`, of gymnax 1.x and before.

Before 1.0, which PureJaxRL and much that is built on it is written for, the `done` of `step_env` and
`is_terminal` include the limit of steps; since then `is_terminated` does not, and `is_truncated` tells of it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxrl.envs import modules
from jaxrl.envs.foreign import api_of
from jaxrl.envs.names import LARGEST_INT32, unknown

LIMIT = "max_steps_in_episode"
_METHODS = ("reset_env", "step_env", "observation_space", "action_space", "default_params")


def instance(name: str, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """An environment of the class `path.to.module:Class`, and its default parameters; ValueError as `load`.

    `kwargs` are arguments of the class, or fields of the parameters, which are left as they are.
    """
    kind = _of_today(load(name))
    valid = inspect.signature(kind).parameters.keys() - {"args", "kwargs"}
    env = kind(**{key: value for key, value in kwargs.items() if key in valid})
    params = env.default_params
    fields = {field.name for field in dataclasses.fields(params)}
    for key in kwargs.keys() - valid - fields:
        raise unknown(f"argument of gymnax:{name}", key, fields | valid)
    return env, params


def load(name: str) -> type[Any]:
    """The class `path.to.module:Class`; ValueError if there is none, or if it has another API."""
    found = modules.load_attribute("gymnax", name)
    # A name must not be able to call any function there is.
    if not isinstance(found, type):
        raise ValueError(f"gymnax:{name} is no class")
    if missing := [method for method in _METHODS if not hasattr(found, method)]:
        api = api_of(found)
        advice = f"; {api.advice(name)}" if api else ""
        raise ValueError(f"gymnax:{name} lacks {', '.join(missing)} of gymnax's API{advice}")
    return found


def has_limit(state: Any, params: Any) -> bool:
    """True if steps are counted as gymnax does it, and limited."""
    return hasattr(state, "time") and hasattr(params, LIMIT)


def _of_today(kind: type[Any]) -> type[Any]:
    """A class with the methods that gymnax's own base has today."""
    from gymnax.environments.environment import Environment

    def is_own(method: str) -> bool:
        return getattr(kind, method, None) not in (None, getattr(Environment, method))

    def is_truncated(self: Any, state: Any, params: Any) -> Any:
        return state.time >= getattr(params, LIMIT) if has_limit(state, params) else jnp.zeros((), bool)

    def step_env(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
        """One step, whose `done` is without the limit: a learner looks beyond a limit, not beyond an end."""
        obs, state, reward, done, info = kind.step_env(self, key, state, action, params)
        if has_limit(state, params):
            unlimited = dataclasses.replace(params, **{LIMIT: LARGEST_INT32})
            done &= self.is_terminal(state, unlimited) | ~self.is_truncated(state, params)
        return obs, state, reward, done, info

    changes: dict[str, Any] = {}
    if not is_own("is_truncated"):
        changes["is_truncated"] = is_truncated
    if is_own("is_terminal") and not is_own("is_terminated"):
        # `discount` of the base asks for it.
        changes |= {"is_terminated": kind.is_terminal, "step_env": step_env}
    return type(kind.__name__, (kind,), changes)
