"""Wrappers by name, composed in a config as strings: `"select_observation(indices=(0, 2))"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.base import HostFactory, JaxEnv
from envs.names import check_32_bits, check_arguments, parse_call, unknown
from envs.wrappers.flatten_observation import FlattenObservation
from envs.wrappers.host import WrappedFactory
from envs.wrappers.limit_cost import LimitCost
from envs.wrappers.one_hot_observation import OneHotObservation
from envs.wrappers.previous_action import PreviousAction
from envs.wrappers.select_observation import SelectObservation
from envs.wrappers.sticky_actions import StickyActions
from envs.wrappers.time_limit import TimeLimit

_WRAPPERS: dict[str, Callable[..., JaxEnv]] = {
    "flatten_observation": FlattenObservation,
    "limit_cost": LimitCost,
    "one_hot_observation": OneHotObservation,
    "previous_action": PreviousAction,
    "select_observation": SelectObservation,
    "sticky_actions": StickyActions,
    "time_limit": TimeLimit,
}


def wrap(env: JaxEnv, name: str) -> JaxEnv:
    """Wraps `env` by the wrapper called `name`, `"name"` or `"name(argument=value)"`.

    Raises:
      ValueError: one line; an unknown wrapper or argument lists the valid ones.
    """
    wrapper, kwargs = parse_call(name)
    if wrapper not in _WRAPPERS:
        raise unknown("wrapper", wrapper, _WRAPPERS)
    check_arguments(f"wrapper {wrapper}", _WRAPPERS[wrapper], kwargs, skip=1)
    for key, value in kwargs.items():
        check_32_bits(f"wrapper {wrapper}: {key}", value)
    return _WRAPPERS[wrapper](env, **kwargs)


def wrap_host(factory: HostFactory, names: Sequence[str]) -> HostFactory:
    """Wraps host environments by wrappers of observations, from the innermost to the outermost.

    Raises:
      ValueError: one line; as `wrap`, and where a wrapper changes more than observations.
    """
    return WrappedFactory(factory, names, wrap) if names else factory


def register(name: str, wrapper: Callable[..., JaxEnv]) -> None:
    """Registers `wrapper`, called as `wrapper(env, **arguments)`; ValueError where `name` is taken."""
    if parse_call(name) != (name, {}):
        raise ValueError(f"wrapper name {name!r} must not have arguments")
    if name in _WRAPPERS:
        raise ValueError(f"wrapper {name!r} is already registered")
    _WRAPPERS[name] = wrapper
