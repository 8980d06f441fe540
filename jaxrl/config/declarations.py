"""Every field by its name: what is declared, with which default, and which value a configuration has."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from ml_collections import ConfigDict

from jaxrl.config.algorithms import section_of
from jaxrl.config.built_in import BUILT_IN, DEFAULT, constant_of
from jaxrl.config.configuration import Config
from jaxrl.config.fields import Field, declarations

# The sections that every algorithm has, by name.
COMMON: dict[str, Any] = {
    name: kind
    for name, kind in get_type_hints(Config).items()
    if dataclasses.is_dataclass(kind) and name not in BUILT_IN
}


@functools.cache
def declared_fields(algorithm: str = DEFAULT) -> dict[str, Field]:
    """Returns every field by its dotted name, such as `ppo.gamma`; fields without a section come first.

    Args:
      algorithm: its fields come beside the built-in algorithms'; it is imported if it comes from
        outside.

    Raises:
      ConfigError: there is no such algorithm.
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

    Args:
      algorithm: the algorithm that learns; `module:Class` has a section too.

    Raises:
      ConfigError: there is no such algorithm.
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
