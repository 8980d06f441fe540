"""A configuration from plain data, its fields checked one by one and together, and back.

This module imports no jax, so that bad input is answered at once.

A run folder may come from anyone. Its checkpoints hold arrays, and its configuration plain values, but among
these are names of modules, and importing one runs its code. So nothing is imported that only a stored
configuration names, unless the user trusts it. A field that may hold a name is marked in its declaration
(`names_module`); environments, wrappers and suites have rules of their own. What an installed package
registers is imported like that package itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxrl.config import words
from jaxrl.config.algorithm import AlgorithmConfig, UnreadSection
from jaxrl.config.configuration import Config, constant_of
from jaxrl.config.data_files import read_yaml
from jaxrl.config.declarations import (
    COMMON,
    algorithm_of,
    declared_fields,
    flatten,
    is_unread,
    section_of,
    values_of,
)
from jaxrl.config.environment import check_task_counts
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import LARGEST_INT32, Field, bounds, check, require_divides
from jaxrl.config.files import shipped_file
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.config.sections import Success
from jaxrl.config.version import __version__
from jaxrl.envs.suites import SUITES

_DERIVED = tuple(name for name, member in vars(Config).items() if isinstance(member, property))


def build(data: Mapping[str, Any], device_count: int) -> Config:
    """The configuration of plain values by name; ConfigError if a key, type, range or count is wrong."""
    algorithm = algorithm_of(data)
    section = section_of(algorithm)
    parts = _parts(data, declared_fields(algorithm), section.name)
    config = _assemble(parts, section.name, section.kind(**parts[section.name]), device_count)
    # With agents of an unknown number, the rows are counted when the environment is made.
    unknown = isinstance(config.learner, MinibatchConfig) and not config.env.num_agents
    suite = config.env.name.partition(":")[0]
    may_have = suite in ("jaxmarl", "pettingzoo") or suite not in {suite.name for suite in SUITES}
    check_counts(config, of_rows=not (unknown and may_have))
    _check_rules(config)
    return config


def to_json(config: Config) -> dict[str, Any]:
    """Returns plain JSON values: the fields under the names users write, `device_count`, and `derived`.

    Of the algorithms it has the section of the one that learns.
    """
    derived = {name: getattr(config, name) for name in _DERIVED}
    return plain(config) | {"device_count": config.device_count, "derived": derived}


def plain(config: Config) -> dict[str, Any]:
    """The fields alone, as `to_json` has them."""
    data: dict[str, Any] = {}
    for field, value in values_of(config):
        target = data.setdefault(field.section, {}) if field.section else data
        target[field.name.rpartition(".")[2]] = list(value) if isinstance(value, tuple) else value
    return data


def from_json(data: Mapping[str, Any]) -> Config:
    """Inverse of `to_json`. Fields that the data lacks take their defaults; `derived` is computed again.

    A module is not imported because the data names it: an algorithm that nothing else has named leaves the
    configuration with an `UnreadSection`, as this module says above. Other data is refused by ConfigError.
    """
    fields = {k: v for k, v in data.items() if k not in ("device_count", "derived")}
    if is_unread(algorithm_of(fields)):
        return _without_section(fields, data.get("device_count", 1))
    config = build(fields, data.get("device_count", 1))
    # What other stages, or an earlier plan of the run, add to them does not follow from the fields.
    derived = data.get("derived")
    planned = derived.get("total_updates") if isinstance(derived, Mapping) else None
    if not isinstance(planned, int) or not 0 < planned < 2**63:
        return config
    return with_planned_updates(config, planned)


def with_planned_updates(config: Config, count: int) -> Config:
    """With the updates that its run plans, if they are not the ones that follow from its fields."""
    config = dataclasses.replace(config, planned_updates=0)
    return config if config.total_updates == count else dataclasses.replace(config, planned_updates=count)


def planned_after(config: Config, earlier: Config, iteration: int) -> int:
    """The planned updates of a run that has made `iteration` iterations by another configuration.

    They are those that `earlier` planned up to there, and the present ones from there on: else a run resumed
    with other epochs or minibatches would reach the ends of its schedules too soon, or never.
    """

    def left(plan: Config) -> int:
        begun = max(iteration, plan.learner.idle_iterations(plan.env.rows))
        return (plan.num_iterations - begun) * plan.updates_per_iteration

    return max(1, earlier.total_updates - left(earlier) + left(config))


def read_section(config: Config) -> Config:
    """Returns the configuration with the section of its algorithm, imported now; ConfigError if it cannot."""
    if not isinstance(config.learner, UnreadSection):
        return config
    return build(json.loads(config.learner.data), config.device_count)


def versions() -> dict[str, str]:
    """Returns the versions of Python, of this package and of the installed packages that decide results."""
    found = {"python": platform.python_version(), "jaxrl": __version__}
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "gymnax", "envpool", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _without_section(data: Mapping[str, Any], device_count: int) -> Config:
    """The configuration of an algorithm that is not imported, which alone knows its section."""
    common = {name: x for name, x in data.items() if name in COMMON or not isinstance(x, Mapping)}
    declared = {name: field for name, field in declared_fields().items() if field.section in ("", *COMMON)}
    learner = UnreadSection(algorithm_of(data), json.dumps(data))
    return _assemble(_parts(common, declared, ""), "", learner, device_count)


def _parts(data: Mapping[str, Any], declared: Mapping[str, Field], section: str) -> dict[str, dict[str, Any]]:
    """The value of every declared field, by section and attribute; `section` is the algorithm's."""
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
        device_count=check("device_count", device_count, int, *bounds(1, LARGEST_INT32)),
    )


def check_counts(config: Config, of_rows: bool = True) -> None:
    """Raises ConfigError unless environments, and their rows, divide among devices and can be indexed."""
    num_envs = config.env.num_envs
    require_divides("num_devices", config.device_count, num_envs, f"`env.num_envs` (={num_envs})")
    check_task_counts(config)
    if not of_rows:
        return
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


def memory_remedies(config: Config) -> str:
    """Changes for less memory that all other fields allow, such as `bfloat16 (--config...)`; never empty."""
    wanted: list[tuple[str, str, Any]] = [
        ("fewer environments", "env.num_envs", config.env.num_envs // 2),
        *((what, f"{config.section}.{name}", x) for what, name, x in config.learner.memory_remedies),
        ("bfloat16", "network.compute_dtype", "bfloat16"),
    ]
    found = [f"{what} (--config.{name}={x})" for what, name, x in wanted if _may_become(config, name, x)]
    return ", ".join(found) or "a smaller network (--config.network.core_size, --config.network.hidden_sizes)"


def _may_become(config: Config, name: str, value: Any) -> bool:
    data = to_json(config)
    section, _, field = name.partition(".")
    before = data[section][field]
    data[section][field] = value
    try:
        from_json(data)
    except ConfigError:
        return False
    return bool(before != value)


def require_trusted(config: Config, workdir: str) -> None:
    """Raises ConfigError if training a stored configuration would import modules that it names."""
    suite = config.evaluate.suite
    try:
        data = read_yaml(shipped_file(suite, "suites")) if suite else None
    except (OSError, ValueError):
        data = None  # nothing can be made of it
    of_suite = (("evaluate.suite", name, is_wrapper) for name, is_wrapper in _texts(data, False))
    _refuse_first((*_named_modules(config), *_modules_of_environments(of_suite)), workdir)


def admit(config: Config, workdir: str, trust: bool, said_by: str = "--trust") -> Config:
    """A stored configuration with its algorithm's section; ConfigError if it needs `trust` and has none."""
    if not trust:
        # What acts plays no suite of the configuration: that file is not even read.
        _refuse_first(_named_modules(config), workdir, said_by)
    return read_section(config)


def needs_trust(config: Config) -> bool:
    """True if commands import a run of this configuration only with --trust."""
    return next(_named_modules(config), None) is not None


def _refuse_first(named: Iterable[tuple[str, str, str]], workdir: str, said_by: str = "--trust") -> None:
    for field, name, module in named:
        raise ConfigError(
            f"`{field}` (={name!r}) of the run {workdir} names the module {module}, which is only imported "
            f"with {said_by}: it can run any code, so use that only for trusted runs"
        )


def _named_modules(config: Config) -> Iterator[tuple[str, str, str]]:
    """(field, its value, the module) of each field that names one."""
    for field, value in values_of(config):
        # `module:attribute`, or several as `key=module:attribute` with commas between.
        for part in value.split(",") if field.names_module else ():
            if ":" in part:
                yield field.name, value, part.rpartition("=")[2].rpartition(":")[0].strip()
    unseen = config.evaluate.unseen
    named = [("env.name", config.env.name, False), *(("env.wrappers", x, True) for x in config.env.wrappers)]
    yield from _modules_of_environments([*named, ("evaluate.unseen", unseen, False)] if unseen else named)


def _modules_of_environments(named: Iterable[tuple[str, str, bool]]) -> Iterator[tuple[str, str, str]]:
    """As `_named_modules`, of environments, and if True wrappers, whose names may have arguments."""
    from jaxrl.envs import registry, wrappers  # imports jax, which the rest of this package does without

    for field, name, is_wrapper in named:
        if (module := (wrappers if is_wrapper else registry).module_of(name)) is not None:
            yield field, name, module


def _texts(data: Any, is_wrapper: bool) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a wrapper) of every text in the content of a suite's file."""
    if isinstance(data, str):
        yield data, is_wrapper
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _texts(value, name == "wrappers")
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value, is_wrapper)
