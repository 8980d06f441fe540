"""Wrappers by name, composed in a config as strings: `"select_observation(indices=(0, 2))"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxrl.envs import modules
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.host_env import HostFactory
from jaxrl.envs.names import check_arguments, check_numbers, parse_call, unknown
from jaxrl.envs.tasks import takes_task
from jaxrl.envs.wrappers.actions import ActionRepeat, StickyActions
from jaxrl.envs.wrappers.agents import AgentId, CentralObservation
from jaxrl.envs.wrappers.episodes import LimitCost, OptimisticResets, ReportInfo, TimeLimit
from jaxrl.envs.wrappers.host import WrappedFactory
from jaxrl.envs.wrappers.observations import (
    FlattenObservation,
    FrameStack,
    MaskObservation,
    NoisyObservation,
    OneHotObservation,
    SelectObservation,
)
from jaxrl.envs.wrappers.previous_action import PreviousAction, PreviousReward
from jaxrl.envs.wrappers.rewards import PotentialShaping, RewardClip, RewardScale, RewardShaping
from jaxrl.envs.wrappers.trials import Trials
from jaxrl.envs.wrappers.wrapper import Wrapper, wrapped

_WRAPPERS: dict[str, Callable[..., JaxEnv]] = {
    "action_repeat": ActionRepeat,
    "agent_id": AgentId,
    "central_observation": CentralObservation,
    "flatten_observation": FlattenObservation,
    "frame_stack": FrameStack,
    "limit_cost": LimitCost,
    "mask_observation": MaskObservation,
    "noisy_observation": NoisyObservation,
    "one_hot_observation": OneHotObservation,
    "optimistic_resets": OptimisticResets,
    "potential_shaping": PotentialShaping,
    "previous_action": PreviousAction,
    "previous_reward": PreviousReward,
    "report": ReportInfo,
    "reward_clip": RewardClip,
    "reward_scale": RewardScale,
    "reward_shaping": RewardShaping,
    "select_observation": SelectObservation,
    "sticky_actions": StickyActions,
    "time_limit": TimeLimit,
    "trials": Trials,
}


def wrap(env: JaxEnv, name: str) -> JaxEnv:
    """Wraps `env` by the wrapper called `name`, `"name"` or `"name(argument=value)"`.

    `path.to.module:Class` is a custom wrapper, called as `Class(env, **arguments)`. ValueError, one line: an
    unknown wrapper or argument lists the valid ones.
    """
    wrapper, kwargs = parse_call(name)
    if ":" in wrapper:
        found: Any = modules.load_attribute("wrapper", wrapper)
        # Nothing but a class of wrappers: a name must not be able to call any function there is.
        if not isinstance(found, type) or not issubclass(found, Wrapper):
            raise ValueError(f"wrapper {wrapper} is no class that inherits from jaxrl.Wrapper")
    elif wrapper in _WRAPPERS:
        found = _WRAPPERS[wrapper]
    else:
        raise unknown("wrapper", wrapper, _WRAPPERS)
    check_arguments(f"wrapper {wrapper}", found, kwargs, skip=1)
    check_numbers(f"wrapper {wrapper}", kwargs)

    def one(env: JaxEnv) -> JaxEnv:
        if env.spec.agents and not getattr(found, "for_agents", False):
            raise ValueError(f"wrapper {wrapper} is for one agent; {env.spec.name} has {env.spec.num_agents}")
        made: JaxEnv = found(env, **kwargs)
        if made.spec.task_space is not None and not takes_task(made):
            raise ValueError(
                f"wrapper {wrapper}: its reset takes no task, but {env.spec.name} has tasks; write "
                "reset(self, key, *task), which calls self.env.reset(key, *task)"
            )
        return made

    return wrapped(env, one)


def module_of(name: str) -> str | None:
    """The module that creating a wrapper imports, from its name or an argument; never raises."""
    try:
        wrapper, kwargs = parse_call(name)
    except ValueError:
        return None
    if ":" in wrapper:
        return wrapper.rpartition(":")[0]
    function = kwargs.get("function") if wrapper in ("potential_shaping", "reward_shaping") else None
    return function.rpartition(":")[0] or None if isinstance(function, str) else None


def wrap_host(factory: HostFactory, names: Sequence[str]) -> HostFactory:
    """Wraps host environments by the wrappers that work there, from the innermost to the outermost.

    ValueError as `wrap`, and if a wrapper needs a device environment.
    """
    return WrappedFactory(factory, names, wrap) if names else factory


def register(name: str, wrapper: Callable[..., JaxEnv]) -> None:
    """Registers `wrapper`, called as `wrapper(env, **arguments)`; ValueError if `name` is taken."""
    if parse_call(name) != (name, {}):
        raise ValueError(f"wrapper name {name!r} must not have arguments")
    if name in _WRAPPERS:
        raise ValueError(f"wrapper {name!r} is already registered")
    _WRAPPERS[name] = wrapper
