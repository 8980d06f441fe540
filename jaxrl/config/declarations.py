"""The section of an algorithm, and every field by its name: its declaration, default and value.

A class from outside has two attributes: `name`, the name of its section, and `config_section`, a frozen
dataclass that derives from `AlgorithmConfig`. It is imported only where `algorithm` names it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from ml_collections import ConfigDict

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.configuration import BUILT_IN, DEFAULT, Config, constant_of
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import Field, declarations, describe, shorten
from jaxrl.envs import entry_points, modules

ENTRY_POINTS = "jaxrl.algorithms"


@dataclasses.dataclass(frozen=True)
class AlgorithmSection:
    """The prefix of an algorithm's fields, the class of its section, and its own if it is from outside."""

    name: str
    kind: type[AlgorithmConfig]
    owner: type | None = None


# Algorithms from outside, by the value of `algorithm`.
_IMPORTED: dict[str, AlgorithmSection] = {}


def algorithm_of(config: Mapping[str, Any]) -> str:
    """The name of the algorithm of a configuration, whose fields may be unchecked."""
    found = config.get("algorithm", DEFAULT)
    if not isinstance(found, str):
        raise ConfigError(f"`algorithm` (={shorten(found)}) must be a string")
    return found


def section_of(algorithm: str) -> AlgorithmSection:
    """The section of an algorithm, imported if it is from outside; ConfigError if it has no proper one."""
    if algorithm in _IMPORTED:
        return _IMPORTED[algorithm]
    given = f"`algorithm` (={algorithm!r})"
    try:
        point = entry_points.find(ENTRY_POINTS, algorithm)
        if point is not None and algorithm in BUILT_IN:
            raise entry_points.clash(point)
        found = None if point is None else entry_points.load(point)
        if found is None and ":" in algorithm:
            found = modules.load_attribute("`algorithm`", algorithm)
    except ValueError as error:
        message = str(error).removeprefix(f"{given}: ")
        raise ConfigError(f"{given}: {message}") from error
    if found is None and algorithm in BUILT_IN:
        return AlgorithmSection(algorithm, BUILT_IN[algorithm])
    if found is None:
        hint = did_you_mean(algorithm, {*BUILT_IN, *entry_points.names(ENTRY_POINTS)})
        raise ConfigError(f"{given} must be an algorithm's name, or module:Class{hint}")
    section = _read(given, found)
    if ":" not in algorithm and section.name != algorithm:
        raise ConfigError(f"{given}: its class has the `name` {section.name!r}, which must be the same")
    _IMPORTED[algorithm] = section
    return section


def is_unread(algorithm: str) -> bool:
    """True if `algorithm` names a module that only stored data has named so far."""
    return ":" in algorithm and algorithm not in _IMPORTED


def _read(given: str, found: Any) -> AlgorithmSection:
    """The section that a class declares, checked; `given` begins the errors."""
    if not isinstance(found, type):
        raise ConfigError(f"{given} must be a class that derives from jaxrl.algorithms.Algorithm")
    name = getattr(found, "name", None)
    kind = getattr(found, "config_section", None)
    parameters = getattr(kind, "__dict__", {}).get("__dataclass_params__")
    is_frozen = parameters is not None and parameters.frozen
    if not (isinstance(kind, type) and issubclass(kind, AlgorithmConfig) and is_frozen):
        raise ConfigError(
            f"{given}: its `config_section` must be a frozen dataclass that derives from "
            "jaxrl.config.AlgorithmConfig"
        )
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{given}: its `name` (={shorten(name)}) must be a lower-case identifier")
    fields = {field.name for field in dataclasses.fields(Config)}
    taken = {*BUILT_IN, *fields, *dir(Config), *dir(ConfigDict), "derived"}
    # A variant of a built-in algorithm may share its section, or add fields to it.
    if name in taken and not (name in BUILT_IN and issubclass(kind, BUILT_IN[name])):
        raise ConfigError(f"{given}: its `name` (={name!r}) is taken: choose another name for its section")
    _check_fields(given, name, kind)
    return AlgorithmSection(name, kind, found)


def _check_fields(given: str, name: str, kind: type[AlgorithmConfig]) -> None:
    """Raises ConfigError unless every field is declared with `field` and has a default that is allowed."""
    described = f"{given}: its section {kind.__name__}"
    try:
        declared = list(declarations(kind, f"{name}."))
        for field in declared:
            describe(field.kind)
            field.check(field.default)
    except ConfigError as error:
        raise ConfigError(f"{given}: {error}") from error
    except Exception as error:  # annotations that mean nothing, or types that no field can have
        raise ConfigError(f"{described} cannot be read: {modules.one_line(error)}") from error
    attributes = {field.attribute for field in declared}
    for argument in inspect.signature(kind).parameters:
        if argument not in attributes:
            raise ConfigError(f"{described} must declare `{argument}` with jaxrl.config.field")
    if kind.collects and "rollout_length" not in attributes:
        raise ConfigError(f"{described} must declare the field `rollout_length`")


# The sections that every algorithm has, by name.
COMMON: dict[str, Any] = {
    name: kind
    for name, kind in get_type_hints(Config).items()
    if dataclasses.is_dataclass(kind) and name not in BUILT_IN
}


@functools.cache
def declared_fields(algorithm: str = DEFAULT) -> dict[str, Field]:
    """Returns every field by its dotted name, such as `ppo.gamma`; fields without a section come first.

    Beside the built-in algorithms' it has those of `algorithm`, which is imported if it comes from outside.
    Raises ConfigError if there is no such algorithm.
    """
    found = list(declarations(Config))
    for section, cls in _sections(algorithm).items():
        found += declarations(cls, f"{section}.")
    return {field.name: field for field in found}


def section_meanings(algorithm: str = DEFAULT) -> dict[str, str]:
    """Returns what each section is about, in one line; `algorithm` as of `declared_fields`."""
    return {name: str(cls.__doc__).partition("\n")[0] for name, cls in _sections(algorithm).items()}


def default_config(algorithm: str = DEFAULT) -> ConfigDict:
    """Returns every field with its default; `configs/*.py` start from this and change what they need.

    `algorithm` learns, and has a section too if it is `module:Class`; ConfigError if there is no such one.
    """
    # Not `type_safe`: numpy's scalars are numbers too, and what is wrong is named by the check of fields.
    config = ConfigDict({section: {} for section in _sections(algorithm)}, type_safe=False)
    for name, field in declared_fields(algorithm).items():
        key = name.rpartition(".")[2]
        target = config[field.section] if field.section else config
        target[key] = field.default
    config.algorithm = algorithm
    return config


def values_of(config: Config) -> Iterator[tuple[Field, Any]]:
    """Yields each field with its value in `config`; of the algorithms' fields only its own algorithm's."""
    parts: dict[str, Any] = {"": config}
    for field in dataclasses.fields(config):
        if field.name in COMMON:
            parts[field.name] = getattr(config, field.name)
        elif field.name == "learner" and config.section:
            parts[config.section] = config.learner
    for name, part in parts.items():
        for declared in declarations(type(part), f"{name}." if name else ""):
            yield declared, getattr(part, declared.attribute)


def settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by which a run trained, from its stored ones by dotted name, as this version has them.

    Where its version lacks a field, it trained as by its default; and a former field that has the value of
    today's constant is left out.
    """
    known = {name: x for name, x in stored.items() if (c := constant_of(name)) is None or x != c}
    return _defaults() | known


@functools.cache
def _defaults() -> dict[str, Any]:
    """As they would be stored."""
    found = flatten(default_config().to_dict())
    return {name: list(x) if isinstance(x, tuple) else x for name, x in found.items()}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _sections(algorithm: str) -> dict[str, Any]:
    """The class of each section: the common ones, and in place of `Config`'s learner the algorithms'."""
    chosen = section_of(algorithm)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        if field.name in COMMON:
            found[field.name] = COMMON[field.name]
        elif field.name == "learner":
            found |= BUILT_IN | {chosen.name: chosen.kind}
    return found
