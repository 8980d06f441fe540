"""Fields of a config that are set from text, or reset for another environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any, get_args, get_origin

from ml_collections import ConfigDict

from jaxrl.config import words
from jaxrl.config.configuration import BUILT_IN, constant_of
from jaxrl.config.declarations import algorithm_of, declared_fields, section_of
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import shorten


def override(config: ConfigDict, name: str, value: Any) -> None:
    """Sets the field `name` (dotted) to a value, or one parsed from a text; ConfigError if it is wrong."""
    algorithm = algorithm_of(config)
    declared = declared_fields(algorithm)
    if name not in declared:
        constant = constant_of(name)
        if constant is not None and read_value(value, type(constant)) == constant:
            return  # as a file of a former version has it
        fields = [field for field in declared if field.startswith(f"{name}.")]
        if fields:
            raise ConfigError(f"`config.{name}` is a section; set its fields, such as `config.{fields[0]}`")
        hint = words.unknown_field_hint(name, declared, section_of(algorithm).name, prefix="config.")
        raise ConfigError(f"`config.{name}` is no field{hint}")
    assign(config, name, read_value(value, declared[name].kind))


def assign(config: ConfigDict, name: str, value: Any) -> None:
    """Sets the field `name` (dotted, declared) of `config`; ConfigError if the value is not allowed.

    Another algorithm takes the section of one from outside away, since it knows no such fields.
    """
    value = declared_fields(algorithm_of(config))[name].check(value)
    section, _, field = name.rpartition(".")
    with config.unlocked():
        if name == "algorithm":
            present = section_of(algorithm_of(config)).name
            if present in config and present not in {*BUILT_IN, section_of(value).name}:
                del config[present]
        if section and section not in config:
            config[section] = ConfigDict()
        target = config[section] if section else config
        # Of the innermost section alone: of the whole configuration it takes a hundred times as long.
        with target.unlocked(), target.ignore_type():
            target[field] = value


def read_value(value: Any, kind: Any) -> Any:
    """A value from a file in which text may stand for it, such as YAML's 1e-5, for `check` to judge."""
    return _parse_value(value, kind) if isinstance(value, str) else _as_integer(value, kind)


def _as_integer(value: Any, kind: Any) -> Any:
    """1e6 as an integer, if the field takes one."""
    whole = isinstance(value, float) and value.is_integer() and int in (kind, *get_args(kind))
    return int(value) if whole else value


def _parse_value(text: str, kind: Any) -> Any:
    """Reads a Python literal, true/false/none, or yes/no/on/off as a bool; the rest is for `check`."""
    if kind is str:
        return text
    literals = {"true": True, "false": False, "none": None}
    if kind is bool:
        literals |= {"yes": True, "on": True, "no": False, "off": False}
    if get_origin(kind) is tuple and text.lower() in ("", "none"):
        return ()
    if text.lower() in literals:
        return literals[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two of deep nesting
        value = _split_at_commas(text) if kind == tuple[str, ...] else text
    if get_origin(kind) is not tuple and isinstance(value, (tuple, list, dict, set)):
        return text  # 1,000,000 is no number, and shown as it was given.
    if get_origin(kind) is tuple and not isinstance(value, (tuple, list)):
        return (value,)  # --config.network.hidden_sizes=64
    return _as_integer(value, kind)  # --config.stop.steps=1e6


def _split_at_commas(text: str) -> tuple[str, ...]:
    """`a(x=1,y=2), b` as `("a(x=1,y=2)", "b")`: commas in brackets separate nothing."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts)


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

    The same environment of another suite, or with other arguments, keeps them. Returns in words what was left
    out, except of the `given` fields, which the user sets too, and which scales were kept; "" is nothing.
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
    name = environment.partition("(")[0]
    # Only names of suites have versions: CartPole-v1 is the same task in gymnax, envpool and Gymnasium.
    return re.split("[:/]", name)[-1] if re.search(r"-v\d+$", name) else name
