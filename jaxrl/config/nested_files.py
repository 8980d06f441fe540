"""Configs in YAML or JSON: the fields by section, over the defaults or a shipped config that `base` names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import converted_counts, other_layouts, rl_zoo
from jaxrl.config.algorithms import algorithm_of, section_of
from jaxrl.config.data_files import parse_json, read_bytes, read_yaml
from jaxrl.config.declarations import declared_fields, default_config, flatten
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.fields import shorten
from jaxrl.config.other_layouts import LEARNER
from jaxrl.config.overrides import override
from jaxrl.config.own_environment import move

ENDINGS = (".yaml", ".yml", ".json")


@dataclasses.dataclass
class Remarks:
    """Remarks on a config file: lines for the user, and a limit on devices.

    Attributes:
      lines: for the user, such as on keys without a counterpart.
      most_devices: to train on, if there are so many; 0: as many as `num_devices`.
    """

    lines: list[str] = dataclasses.field(default_factory=list)
    most_devices: int = 0


def load(
    path: str, described: str, shipped: Callable[[str], ConfigDict], remarks: Remarks, environment: str = ""
) -> ConfigDict:
    """Returns the configuration in a file.

    Args:
      path: of a local file.
      described: the file in errors, such as "`--config` (='mine.yaml')".
      shipped: returns a shipped config by its name.
      environment: chooses a section of a file that has one for each.
      remarks: collects settings of the file that this configuration does not take over as they are.

    Raises:
      ConfigError: it cannot be read, or a key or value in it is wrong.
    """
    try:
        data = parse_json(read_bytes(path), _single_keys) if path.endswith(".json") else read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{described} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        form = "JSON" if path.endswith(".json") else "YAML"
        raise ConfigError(f"{described} must be {form}: {error}") from error
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{described} must hold fields by section, such as `ppo: {{gamma: 0.99}}`")
    with errors_as(ConfigError, described, ConfigError):
        lines = Remarks()
        if rl_zoo.is_zoo(data):
            data = rl_zoo.read_section(data, path, environment)
        config = _build(data, shipped, lines)
        remarks.lines += [f"{path}: {line}" for line in lines.lines]
        remarks.most_devices = lines.most_devices
        return config


def _single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; raises ValueError if a key comes twice: only its last value would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {max(keys, key=keys.count)!r} comes twice")
    return found


def _build(data: Mapping[Any, Any], shipped: Callable[[str], ConfigDict], remarks: Remarks) -> ConfigDict:
    base = data.get("base")
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"`base` (={shorten(base)}) must be the name of a shipped config")
    found = other_layouts.translate({key: value for key, value in data.items() if key != "base"})
    fields = flatten(found.fields)
    algorithm = fields.pop("algorithm", None)
    config = default_config() if base is None else shipped(base)
    if algorithm is not None:
        override(config, "algorithm", algorithm)
        config = default_config(config.algorithm) if base is None else config
    fields = _of_algorithm(fields, config, found)
    if found.left_out:
        remarks.lines.append(f"without a counterpart here, and left out: {', '.join(found.left_out)}")
    if base is not None and isinstance(fields.get("env.name"), str):
        moved = move(config, fields["env.name"], fields)
        if moved:
            remarks.lines.append(f"{fields['env.name']} with the config {base}: {moved}")
    sections = {field.section for field in declared_fields(algorithm_of(config)).values()}
    for name, value in fields.items():
        if value is not None or name not in sections:  # A section in which all lines are comments is None.
            override(config, name, value)
    if found.is_foreign:
        remarks.lines += converted_counts.convert(config, found.sizes, fields)
        _set_devices(config, found, remarks)
    return config


def _of_algorithm(
    fields: Mapping[str, Any], config: ConfigDict, found: other_layouts.Translation
) -> dict[str, Any]:
    """The fields by their names, without fields that the algorithm does not have."""
    section = section_of(algorithm_of(config)).name
    named = {}
    for name, value in fields.items():
        field = name.replace(LEARNER, f"{section}.", 1) if name.startswith(LEARNER) else name
        if field != name and field not in declared_fields(algorithm_of(config)):
            found.left_out.append(f"{found.origin[name]} (no field of {section})")
        else:
            named[field] = value
    return named


def _set_devices(config: ConfigDict, found: other_layouts.Translation, remarks: Remarks) -> None:
    """One device is always there; of more, as many are taken as there are."""
    size = found.sizes.get("devices")
    if size is None:
        return
    if size.value == 1:
        override(config, "num_devices", 1)
        return
    remarks.most_devices = size.value
    remarks.lines.append(f"{size}: at most so many devices; if there are fewer, all of them")
