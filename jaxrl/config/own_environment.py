"""The fields that a config sets for its own environment alone, and not for another one."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config.declarations import declared_fields
from jaxrl.config.fields import shorten
from jaxrl.config.overrides import assign

_OF_LEVELS = ("stop.return", "stop.every_mode", "evaluate.unseen", "evaluate.suite")
# What is seen of the environment, its scale of rewards, and when it counts as solved.
_OF_ENVIRONMENT = (
    "env.num_agents",
    "env.wrappers",
    "env.success",
    "curriculum.name",
    "curriculum.file",
    "curriculum.stages",
    "curriculum.start_stage",
    *_OF_LEVELS,
)
_SCALES = ("normalize.observations", "normalize.rewards", "normalize.clip_rewards")


def move(config: ConfigDict, environment: str, given: Collection[str] = ()) -> str:
    """Sets `env.name`, and resets the fields that `config` sets for its own environment alone.

    The same environment of another suite, or with other arguments, keeps them.

    Args:
      given: names of fields that the user sets too; the result does not mention them.

    Returns:
      what was left out and which scales were kept, in words; "" if that is nothing.
    """
    own = str(_value(config, "env.name"))
    left_out = []
    if _task(own) != _task(environment):
        left_out = _reset(config, _OF_ENVIRONMENT, given)
    assign(config, "env.name", environment)
    if not left_out:
        return ""
    scales = [name for name in _SCALES if name not in given and _value(config, name)]
    kept = f"; kept {_list_values(config, scales)}" if scales else ""
    return f"left out fields of {own}: {', '.join(left_out)}{kept}"


def forget_levels(config: ConfigDict) -> None:
    """Resets the fields for an environment's specific levels, such as unseen ones, to their defaults."""
    _reset(config, _OF_LEVELS)


def without_arguments(environment: str) -> str:
    """`suite:Name` of `suite:Name(argument=value)`."""
    return environment.partition("(")[0]


def _reset(config: ConfigDict, names: Collection[str], given: Collection[str] = ()) -> list[str]:
    """Sets fields to their defaults; returns the changed ones, unless they are in `given`."""
    changed = []
    for name in names:
        default = declared_fields()[name].default
        if _value(config, name) not in (None, default):
            changed += [] if name in given else [_list_values(config, [name])]
            assign(config, name, default)
    return changed


def _value(config: ConfigDict, name: str) -> Any:
    section, _, field = name.partition(".")
    return config[section][field] if section in config and field in config[section] else None


def _list_values(config: ConfigDict, names: Collection[str]) -> str:
    return ", ".join(f"{name}={shorten(_value(config, name))}" for name in names)


def _task(environment: str) -> str:
    """The name without arguments, and without the suite if several may have that environment."""
    name = without_arguments(environment)
    # Only names of suites have versions: CartPole-v1 is the same task in gymnax, envpool and Gymnasium.
    return re.split("[:/]", name)[-1] if re.search(r"-v\d+$", name) else name
