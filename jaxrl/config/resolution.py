"""The configuration: its fields, their defaults (`default_config`) and its one check (`resolve`).

Everything downstream sees only the frozen `Config`; nothing re-derives a count. This module imports no
jax, so that bad input is answered at once.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ml_collections import ConfigDict, config_dict

from jaxrl import __version__
from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import LARGEST_INT32, Field, at_least, at_most, check, declarations, require_divides
from jaxrl.config.sections import Config, EnvConfig
from jaxrl.config.success import Success

if TYPE_CHECKING:
    from envs.base import EnvSpec

_DERIVED = tuple(
    name for name, member in vars(Config).items() if isinstance(member, property) and name != "learner"
)
_SECTIONS: dict[str, Any] = {
    name: kind for name, kind in get_type_hints(Config).items() if dataclasses.is_dataclass(kind)
}
_ALGORITHMS = {name for name, kind in _SECTIONS.items() if issubclass(kind, AlgorithmConfig)}


@functools.cache
def declared_fields() -> dict[str, Field]:
    """Returns every field by its dotted name, such as `ppo.gamma`; fields without a section come first."""
    found = list(declarations(Config))
    for section, cls in _SECTIONS.items():
        found += declarations(cls, f"{section}.")
    return {field.name: field for field in found}


def section_meanings() -> dict[str, str]:
    """Returns what each section is about, in one line."""
    return {name: str(cls.__doc__).partition("\n")[0] for name, cls in _SECTIONS.items()}


def default_config() -> ConfigDict:
    """Returns every field with its default; `configs/*.py` start from this and change what they need."""
    config = ConfigDict({section: {} for section in _SECTIONS})
    for name, field in declared_fields().items():
        section, _, key = name.rpartition(".")
        target = config[section] if section else config
        target[key] = _placeholder(field.kind) if field.default is None else field.default
    return config


def _placeholder(kind: Any) -> Any:
    """None, of a field that takes a number as well."""
    return config_dict.placeholder(next(k for k in get_args(kind) if k is not type(None)))


def fixed_fields(stored: Config, given: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, stored, given) of each field that a resumed run may not change.

    Budgets, intervals and hyperparameters may; what the stored state depends on may not.
    """
    for name, field in declared_fields().items():
        section = name.rpartition(".")[0]
        if field.fixed and section not in _ALGORITHMS - {given.algorithm}:
            theirs, ours = (getattr(c, section) if section else c for c in (stored, given))
            yield name, getattr(theirs, field.attribute), getattr(ours, field.attribute)


def changed_fields(stored: Config, given: Config) -> list[str]:
    """Returns, in words, each field that a resumed run may not change and that differs."""
    return [
        f"`{name}` (={theirs!r} there, {ours!r} now)"
        for name, theirs, ours in fixed_fields(stored, given)
        if theirs != ours
    ]


def resolve(config: ConfigDict, device_count: int) -> Config:
    """Checks everything that can be checked before compilation and returns the frozen configuration.

    Args:
      config: as `default_config` returns it, with changes; missing fields take their defaults.
      device_count: devices that share the environments, over all processes.

    Raises:
      ConfigError: an unknown key, a wrong type or range, counts that do not divide, or an environment
        that cannot be made.
    """
    resolved = _build(config.to_dict(), device_count)
    _check_environment(resolved)
    return resolved


def check_config(config: ConfigDict) -> Config:
    """Returns the configuration for one device, checked as by `resolve`, but without making the environment.

    Raises:
      ConfigError: `resolve` would raise it on any number of devices.
    """
    return _build(config.to_dict(), device_count=1)


def largest_device_count(config: ConfigDict, available: int, processes: int = 1) -> int:
    """Returns the largest number of devices, at most `available`, that can share the environments evenly.

    Every device needs a multiple of `AlgorithmConfig.envs_multiple` environments, and each of several
    processes as many devices as the others.

    Raises:
      ConfigError: the configuration is wrong on any number of devices, or on so many processes.
    """
    c = check_config(config)
    multiple = c.learner.envs_multiple
    groups = c.env.num_envs // multiple
    if groups % processes:
        raise ConfigError(
            f"`env.num_envs` (={c.env.num_envs}) cannot be shared by {processes} processes: a device takes a "
            f"multiple of {multiple} (see `{c.algorithm}`), so the number of processes must divide {groups}"
        )
    return max(n for n in range(processes, max(processes, available) + 1, processes) if groups % n == 0)


def to_json(config: Config) -> dict[str, Any]:
    """Returns plain JSON values: the fields under the names users write, `device_count`, and `derived`."""

    return _plain(config) | {"derived": {name: getattr(config, name) for name in _DERIVED}}


def from_json(data: Mapping[str, Any]) -> Config:
    """Inverse of `to_json`. Fields that the data lacks take their defaults; `derived` is computed again.

    Raises:
      ConfigError: the data is not what `to_json` wrote.
    """
    fields = {k: v for k, v in data.items() if k not in ("device_count", "derived")}
    return _build(fields, data.get("device_count", 1))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {f.metadata.get("key") or f.name: _plain(getattr(value, f.name)) for f in fields}
    return list(value) if isinstance(value, tuple) else value


def versions() -> dict[str, str]:
    """Returns the versions of Python, of this package and of the installed packages that decide results."""
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "gymnax", "envpool", "numpy")
    found = {"python": platform.python_version(), "jaxrl": __version__}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _build(data: Mapping[str, Any], device_count: int) -> Config:
    """Checks keys, types, ranges and divisibility."""
    declared = declared_fields()
    given = flatten(data)
    for name, value in given.items():
        if name in _SECTIONS:
            raise ConfigError(f"`{name}` (={value!r}) must be a section with fields of its own")
        if name not in declared:
            raise ConfigError(f"`{name}` is no field of the configuration{did_you_mean(name, declared)}")
    parts: dict[str, dict[str, Any]] = {section: {} for section in ("", *_SECTIONS)}
    for name, field in declared.items():
        section = name.rpartition(".")[0]
        parts[section][field.attribute] = field.check(given.get(name, field.default))
    config = Config(
        **parts.pop(""),
        **{section: _SECTIONS[section](**values) for section, values in parts.items()},
        device_count=check("device_count", device_count, int, at_least(1), at_most(LARGEST_INT32)),
    )
    if config.env.success:
        Success.parse(config.env.success, "env.success")
    num_envs = config.env.num_envs
    require_divides("num_devices", config.device_count, num_envs, f"`env.num_envs` (={num_envs})")
    config.learner.check_counts(num_envs, config.device_count)
    if config.envs_per_device * config.rollout_length > LARGEST_INT32:
        raise ConfigError(
            f"`env.num_envs` (={num_envs}) times rollouts of {config.rollout_length} steps must be at most "
            f"{LARGEST_INT32} on each of {config.device_count} devices"
        )
    if config.stop.target_return is not None and not config.evaluate.every_steps:
        raise ConfigError(
            f"`stop.return` (={config.stop.target_return}) needs evaluations: `evaluate.every_steps` (=0)"
        )
    if config.resume_from and config.init_from:
        raise ConfigError(
            f"`resume_from` (={config.resume_from!r}) continues a whole run, so `init_from` "
            f"(={config.init_from!r}) must be empty"
        )
    return config


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _check_environment(c: Config) -> None:
    # Here and not above: environments import jax.
    from envs import registry
    from envs.checks import check_behaviour

    for field, value, wrappers in (("name", c.env.name, ()), ("wrappers", c.env.wrappers, c.env.wrappers)):
        environment_spec(f"env.{field}", value, c.env.name, wrappers)
    if registry.is_custom(c.env.name):
        try:
            check_behaviour(c.env.name, registry.make(c.env.name))
        except ValueError as error:
            raise ConfigError(f"`env.name` (={c.env.name!r}): {error}") from error
    if c.evaluate.unseen:
        check_same_spaces("evaluate.unseen", c.evaluate.unseen, c.env)
    if c.env.success and (rule := Success.parse(c.env.success, "env.success")).is_info:
        for name in filter(None, (c.env.name, c.evaluate.unseen)):
            try:
                registry.check_info_key(name, c.env.wrappers, rule.subject)
            except ValueError as error:
                raise ConfigError(f"`env.success` (={c.env.success!r}): {error}") from error
    if registry.is_host(c.env.name):
        _check_host(c)


def check_same_spaces(field: str, name: str, env: EnvConfig) -> None:
    """Raises ConfigError unless the environment `name` has the same spaces as the configuration's."""
    other, own = (environment_spec(field, name, x, env.wrappers) for x in (name, env.name))
    for what in ("observation_space", "action_space"):
        if getattr(other, what) != getattr(own, what):
            raise ConfigError(f"`{field}` (={name!r}) has another {what} than `env.name` (={env.name!r})")


def environment_spec(field: str, value: Any, name: str, wrappers: tuple[str, ...]) -> EnvSpec:
    """Returns the spec of an environment.

    Args:
      field: what names it, or its wrappers, for the error.
      value: what that field says.
      name: the environment.
      wrappers: their names, from the innermost to the outermost.

    Raises:
      ConfigError: it cannot be made.
    """
    from envs import modules, registry

    try:
        return registry.spec_of(name, wrappers)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"`{field}` (={value!r}): {' '.join(str(error).split())}") from error
    except Exception as error:  # whatever code of a suite, or the user's, makes of its arguments
        raise ConfigError(f"`{field}` (={value!r}): making it raised {modules.one_line(error)}") from error


def _check_host(c: Config) -> None:
    """Groups have the same number of environments and of workers."""
    groups, workers = c.host.num_groups, c.host.num_workers
    if c.env.num_envs % groups:
        raise ConfigError(f"`host.num_groups` (={groups}) must divide `env.num_envs` (={c.env.num_envs})")
    if workers % groups:
        raise ConfigError(f"`host.num_groups` (={groups}) must divide `host.num_workers` (={workers})")
