"""The one check of the configuration (`resolve`), and its form as JSON.

Everything downstream sees only the frozen `Config`; nothing re-derives a count. This module imports no
jax, so that bad input is answered at once.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jaxrl.config import stages, training_stages, words
from jaxrl.config.algorithm import AlgorithmConfig, UnreadSection
from jaxrl.config.algorithms import algorithm_of, is_unread, section_of
from jaxrl.config.built_in import constant_of
from jaxrl.config.configuration import Config
from jaxrl.config.declarations import COMMON, declared_fields, flatten, values_of
from jaxrl.config.environment import (
    check_environment,
    check_task_counts,
    require_spaces,
    with_full_names,
)
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import LARGEST_INT32, Field, at_least, at_most, check, require_divides
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.config.rebuilt_environments import with_rebuilt_environments
from jaxrl.config.success import Success
from jaxrl.config.version import __version__

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec

_DERIVED = tuple(name for name, member in vars(Config).items() if isinstance(member, property))


def fixed_fields(stored: Config, given: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, stored, given) of each field that a resumed run may not change.

    Budgets, intervals and hyperparameters may; what the stored state depends on may not.
    """
    if given.section and stored.algorithm == given.algorithm:
        stored = read_section(stored)  # Its module is imported already, for `given`.
    theirs = {field.name: value for field, value in values_of(stored)}
    for field, value in values_of(given):
        # Where the algorithms differ, `algorithm` says so.
        if field.fixed and (field.section != given.section or stored.algorithm == given.algorithm):
            yield field.name, theirs[field.name], value


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

    Environments that are named without a suite get the first that has them, see `common_names`.

    Raises:
      ConfigError: an unknown key, a wrong type or range, counts that do not divide, or an environment
        that cannot be made.
    """
    built = with_full_names(_build(config.to_dict(), device_count))
    resolved = with_full_names(_with_stages(with_rebuilt_environments(built)))
    resolved = _with_agents(resolved, check_environment(resolved))
    stage_configs(resolved)
    return resolved


def _with_agents(config: Config, spec: EnvSpec) -> Config:
    """With the number of agents that the environment has.

    Raises:
      ConfigError: the configuration says another one, or the rows do not divide.
    """
    given = config.env.num_agents
    found = len(spec.agents)
    if given not in (0, found) and (given, found) != (1, 0):
        raise ConfigError(
            f"`env.num_agents` (={given}) must be left out, or {max(1, found)} for {spec.name}, which "
            "declares its number of agents"
        )
    config = dataclasses.replace(config, env=dataclasses.replace(config.env, num_agents=found))
    if isinstance(config.learner, MinibatchConfig):  # others refuse several agents
        _check_counts(config)
    return config


def stage_configs(config: Config) -> tuple[Config, ...]:
    """The configuration of each of its `stages`; without any, itself alone.

    Raises:
      ConfigError: a stage cannot follow the one before; the message names it.
    """
    found: list[Config] = []
    for i, stage in enumerate(training_stages.parse(config)):
        before = found[-1] if found else config
        try:
            found.append(_with_changes(before, stage.changes))
            if found[-1].env != before.env:
                found[-1] = _with_agents(found[-1], check_environment(found[-1]))
                require_spaces(found[-1].env, before.env)
        except ConfigError as error:
            raise training_stages.in_stage(i, error) from error
    return tuple(found) or (config,)


def _with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """With other values by dotted name; a curriculum that one of them gives takes the place of the other."""
    data = to_json(config)
    if any(name.startswith("curriculum.") for name in changes):
        data["curriculum"] = {}
    for name, value in changes.items():
        section, _, field = name.rpartition(".")
        (data[section] if section else data)[field] = value
    if "env.name" in changes or "env.tasks" in changes:
        data["env"]["num_agents"] = 0  # of the environment before
    derived = ("device_count", "derived")
    plain = {name: value for name, value in data.items() if name not in derived}
    return with_full_names(_with_stages(_build(plain, config.device_count)))


def check_config(config: ConfigDict) -> Config:
    """Returns the configuration for one device, checked as by `resolve`, but without making the environment.

    Raises:
      ConfigError: `resolve` would raise it on any number of devices.
    """
    return _with_stages(_build(config.to_dict(), device_count=1))


def largest_device_count(config: ConfigDict, available: int, processes: int = 1) -> int:
    """Returns the largest number of devices, at most `available`, that can share the environments evenly.

    Every device needs a multiple of `AlgorithmConfig.envs_multiple` environments, and each of several
    processes as many devices as the others.

    Raises:
      ConfigError: the configuration is wrong on any number of devices, or on so many processes.
    """
    c = check_config(config)
    multiple = math.lcm(c.learner.envs_multiple(c.env.num_envs), c.env.task_period)
    groups = c.env.num_envs // multiple
    if groups % processes:
        raise ConfigError(
            f"`env.num_envs` (={c.env.num_envs}) cannot be shared by {processes} processes: a device takes a "
            f"multiple of {multiple} (see `{c.section}`), so the number of processes must divide {groups}"
        )
    return max(n for n in range(processes, max(processes, available) + 1, processes) if groups % n == 0)


def to_json(config: Config) -> dict[str, Any]:
    """Returns plain JSON values: the fields under the names users write, `device_count`, and `derived`.

    Of the algorithms it has the section of the one that learns.
    """
    data: dict[str, Any] = {}
    for field, value in values_of(config):
        target = data.setdefault(field.section, {}) if field.section else data
        target[field.name.rpartition(".")[2]] = list(value) if isinstance(value, tuple) else value
    derived = {name: getattr(config, name) for name in _DERIVED}
    return data | {"device_count": config.device_count, "derived": derived}


def from_json(data: Mapping[str, Any]) -> Config:
    """Inverse of `to_json`. Fields that the data lacks take their defaults; `derived` is computed again.

    A module is not imported because the data names it: an algorithm that nothing else has named leaves the
    configuration with an `UnreadSection`, see `jaxrl.config.trust`.

    Raises:
      ConfigError: the data is not what `to_json` wrote.
    """
    fields = {k: v for k, v in data.items() if k not in ("device_count", "derived")}
    build = _without_section if is_unread(algorithm_of(fields)) else _build
    return build(fields, data.get("device_count", 1))


def read_section(config: Config) -> Config:
    """Returns the configuration with the section of its algorithm, whose module is imported.

    Raises:
      ConfigError: it cannot be imported, or its section is not what is stored.
    """
    if not isinstance(config.learner, UnreadSection):
        return config
    return _build(json.loads(config.learner.data), config.device_count)


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
    algorithm = algorithm_of(data)
    section = section_of(algorithm)
    parts = _parts(data, declared_fields(algorithm), section.name)
    config = _assemble(parts, section.name, section.kind(**parts[section.name]), device_count)
    _check_counts(config)
    _check_rules(config)
    return config


def _with_stages(config: Config) -> Config:
    """With the stages that files hold: a run keeps them, whatever becomes of the files."""
    config = _with_training_stages(config)
    name = stages.environment_for(config.curriculum, config.env.name)
    config = dataclasses.replace(config, env=dataclasses.replace(config.env, name=name))
    curriculum = stages.resolve_stages(config.curriculum, config.env.name, config.steps_per_iteration)
    config = dataclasses.replace(config, curriculum=curriculum)
    if config.curriculum.is_used and not config.collects:
        raise ConfigError(
            f"`curriculum` is for algorithms that step environments; `algorithm` (={config.algorithm!r}) "
            "steps none"
        )
    return config


def _with_training_stages(config: Config) -> Config:
    """With the texts of `stages`, and the steps of the run if it is they that say them."""
    if not config.stages:
        return config
    if config.population.seeds > 1:
        raise ConfigError(
            f"`population.seeds` (={config.population.seeds}) must be 1 with `stages`: the members of a "
            "population are one program"
        )
    config = dataclasses.replace(config, stages=training_stages.read(config.stages))
    found = training_stages.parse(config)
    if found[-1].is_open:
        return config
    iterations = training_stages.total_iterations(found)
    steps = None if iterations is None else iterations * config.steps_per_iteration
    return dataclasses.replace(config, stop=dataclasses.replace(config.stop, steps=steps))


def _without_section(data: Mapping[str, Any], device_count: int) -> Config:
    """The configuration of an algorithm that is not imported, which alone knows its section."""
    common = {name: x for name, x in data.items() if name in COMMON or not isinstance(x, Mapping)}
    declared = {name: field for name, field in declared_fields().items() if field.section in ("", *COMMON)}
    learner = UnreadSection(algorithm_of(data), json.dumps(data))
    return _assemble(_parts(common, declared, ""), "", learner, device_count)


def _parts(data: Mapping[str, Any], declared: Mapping[str, Field], section: str) -> dict[str, dict[str, Any]]:
    """The value of every declared field, by section and attribute; `section` is that of the algorithm."""
    given = flatten(data)
    parts: dict[str, dict[str, Any]] = {field.section: {} for field in declared.values()}
    for name, value in given.items():
        if name in parts:
            raise ConfigError(f"`{name}` (={value!r}) must be a section with fields of its own")
        if name not in declared and (value is None or value != constant_of(name)):
            hint = words.unknown_field_hint(name, declared, section)
            raise ConfigError(f"`{name}` is no field of the configuration{hint}")
    for name, field in declared.items():
        parts[field.section][field.attribute] = field.check(given.get(name, field.default))
    return parts


def _assemble(
    parts: Mapping[str, Mapping[str, Any]], section: str, learner: AlgorithmConfig, device_count: int
) -> Config:
    return Config(
        **parts[""],
        **{name: kind(**parts[name]) for name, kind in COMMON.items()},
        section=section,
        learner=learner,
        device_count=check("device_count", device_count, int, at_least(1), at_most(LARGEST_INT32)),
    )


def _check_counts(config: Config) -> None:
    """Environments divide among devices as the algorithm needs it, and arrays can be indexed."""
    num_envs = config.env.num_envs
    require_divides("num_devices", config.device_count, num_envs, f"`env.num_envs` (={num_envs})")
    check_task_counts(config)
    try:
        config.learner.check_counts(config.section, config.env.rows, config.device_count)
    except ConfigError as error:
        if config.env.num_agents < 2:
            raise
        counted = f"{num_envs} environments of {config.env.num_agents} agents are {config.env.rows} rows"
        raise ConfigError(f"{error}; {counted}, which count here") from error
    if config.rows_per_device * config.rollout_length > LARGEST_INT32:
        raise ConfigError(
            f"`env.num_envs` (={num_envs}) times rollouts of {config.rollout_length} steps must be at most "
            f"{LARGEST_INT32} on each of {config.device_count} devices"
        )


def _check_rules(config: Config) -> None:
    """Fields fit together that no algorithm asks for."""
    if config.env.success:
        Success.parse(config.env.success, "env.success")
    if config.selfplay.enabled:
        config.selfplay.check_counts(config.envs_per_device)
    endless = config.stop.steps is None and config.stop.seconds is None and config.stop.wall_seconds is None
    if endless and not config.stages:
        raise ConfigError(
            "`stop.steps` (=None) must be a number, or `stop.seconds` or `stop.wall_seconds` one: "
            "the run would never end"
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
