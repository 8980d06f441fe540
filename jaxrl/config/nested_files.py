"""Configs in YAML or JSON: the fields by section, over the defaults or a shipped config that `base` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import other_layouts
from jaxrl.config.algorithms import algorithm_of, section_of
from jaxrl.config.data_files import read_json, read_yaml
from jaxrl.config.declarations import declared_fields, default_config, flatten
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import shorten
from jaxrl.config.overrides import override
from jaxrl.config.own_environment import move

ENDINGS = (".yaml", ".yml", ".json")
_LEARNER = "learner"  # the section of the algorithm, in the names that other layouts are translated to


def load(path: str, described: str, shipped: Callable[[str], ConfigDict], notes: list[str]) -> ConfigDict:
    """Returns what a file says.

    Args:
      path: of a local file.
      described: the file in errors, such as "`--config` (='mine.yaml')".
      shipped: returns a shipped config by its name.
      notes: takes lines about what the file says and this configuration does not take over.

    Raises:
      ConfigError: it cannot be read, or a key or value in it is wrong.
    """
    try:
        data = read_json(path) if path.endswith(".json") else read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{described} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        form = "JSON" if path.endswith(".json") else "YAML"
        raise ConfigError(f"{described} must be {form}: {error}") from error
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{described} must hold fields by section, such as `ppo: {{gamma: 0.99}}`")
    try:
        return _build(data, shipped, lambda line: notes.append(f"{path}: {line}"))
    except ConfigError as error:
        raise ConfigError(f"{described}: {error}") from error


def _build(
    data: Mapping[Any, Any], shipped: Callable[[str], ConfigDict], note: Callable[[str], None]
) -> ConfigDict:
    base = data.get("base")
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"`base` (={shorten(base)}) must be the name of a shipped config")
    said, unknown = other_layouts.translate({key: value for key, value in data.items() if key != "base"})
    if unknown:
        note(f"without a counterpart here, and left out: {', '.join(unknown)}")
    fields = flatten(said)
    algorithm = fields.pop("algorithm", None)
    config = default_config() if base is None else shipped(base)
    if algorithm is not None:
        override(config, "algorithm", algorithm)
        config = default_config(config.algorithm) if base is None else config
    fields = {_field_name(name, config): value for name, value in fields.items()}
    if base is not None and isinstance(fields.get("env.name"), str):
        moved = move(config, fields["env.name"], fields)
        if moved:
            note(f"{fields['env.name']} with the config {base}: {moved}")
    sections = {field.section for field in declared_fields(algorithm_of(config)).values()}
    for name, value in fields.items():
        if value is not None or name not in sections:  # A section in which all lines are comments is None.
            override(config, name, value)
    return config


def _field_name(name: str, config: ConfigDict) -> str:
    """The name of a field, of which `learner` may be the section."""
    section, dot, field = name.partition(".")
    if section != _LEARNER:
        return name
    return f"{section_of(algorithm_of(config)).name}{dot}{field}"
