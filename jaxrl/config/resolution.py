"""The one check of the configuration: `resolve`.

Everything downstream sees only the frozen `Config`; nothing re-derives a count. This module imports no
jax, so that bad input is answered at once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jaxrl.config import stages, training_stages
from jaxrl.config.configuration import Config
from jaxrl.config.construction import build, check_counts, plain, read_section, with_planned_updates
from jaxrl.config.curriculum import STAGES, CurriculumConfig
from jaxrl.config.declarations import values_of
from jaxrl.config.environment import (
    check_environment,
    environment_spec,
    require_spaces,
    spec_of,
    with_full_names,
)
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.fields import shorten, with_arguments
from jaxrl.config.minibatches import MinibatchConfig

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec


def fixed_fields(stored: Config, given: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, stored, given) of each field that a resumed run may not change.

    Budgets, intervals and hyperparameters may; what the stored state depends on may not.
    """
    if given.section and stored.algorithm == given.algorithm:
        stored = read_section(stored)  # Its module is imported already, for `given`.
    theirs = {field.name: value for field, value in values_of(stored)}
    for field, value in values_of(given):
        # If the algorithms differ, the field `algorithm` shows it.
        if field.fixed and (field.section != given.section or stored.algorithm == given.algorithm):
            yield field.name, theirs[field.name], value


def changed_fields(stored: Config, given: Config) -> list[str]:
    """Returns, in words, each field that a resumed run may not change and that differs."""
    fixed = fixed_fields(stored, given)
    return [f"`{name}` (={theirs!r} there, {ours!r} now)" for name, theirs, ours in fixed if theirs != ours]


def resolve(config: ConfigDict, device_count: int) -> Config:
    """Checks everything that can be checked before compilation and returns the frozen configuration.

    Environments that are named without a suite get the first that has them.

    Args:
      config: as `default_config` returns it, with changes; missing fields take their defaults.
      device_count: devices that share the environments, over all processes.

    Raises:
      ConfigError: an unknown key, a wrong type or range, counts that do not divide, or an environment
        that cannot be made.
    """
    built = with_full_names(build(config.to_dict(), device_count))
    resolved = with_full_names(_with_stages(_with_rebuilt_environments(built)))
    resolved = _with_agents(resolved, check_environment(resolved))
    stage_configs(resolved)
    return resolved


def require_config(config: object) -> None:
    """Raises ConfigError unless `config` is a configuration, resolved or not."""
    if not isinstance(config, ConfigDict | Config):
        text = "must be a configuration, such as jaxrl.load_config(NAME_OR_FILE)"
        raise ConfigError(f"`config` (={shorten(config)}) {text}")


def _with_agents(config: Config, spec: EnvSpec) -> Config:
    """With the number of agents that the environment has; ConfigError if it does not fit."""
    given = config.env.num_agents
    found = len(spec.agents)
    if given not in (0, found) and (given, found) != (1, 0):
        raise ConfigError(
            f"`env.num_agents` (={given}) must be left out, or {max(1, found)} for {spec.name}, which "
            "declares its number of agents"
        )
    config = dataclasses.replace(config, env=dataclasses.replace(config.env, num_agents=found))
    if isinstance(config.learner, MinibatchConfig):  # others refuse several agents
        check_counts(config)
    return config


def stage_configs(config: Config) -> tuple[Config, ...]:
    """The configuration of each of its `stages`, or itself alone; ConfigError if one cannot follow."""
    found: list[Config] = []
    for i, stage in enumerate(training_stages.parse(config)):
        before = found[-1] if found else config
        with errors_as(ConfigError, f"`stages`: stage {i + 1}", ConfigError):
            found.append(_with_changes(before, stage.changes))
            if found[-1].env != before.env:
                found[-1] = _with_agents(found[-1], check_environment(found[-1]))
                require_spaces(found[-1].env, before.env)
    return _with_planned_updates(config, found) if found else (config,)


def _with_planned_updates(config: Config, found: Sequence[Config]) -> tuple[Config, ...]:
    """The stages with the updates of all of them, which schedules follow over the whole run."""
    rates = [stage.updates_per_iteration for stage in found]
    # Of each stage the first iterations without an update: memories are empty at first, or emptied.
    fills = [True, *(empties_memory(before, after) for before, after in pairwise(found))]
    idle = [x.learner.idle_iterations(x.env.rows) * fill for x, fill in zip(found, fills, strict=True)]
    if len(set(rates)) == 1 and not any(idle[1:]):
        return tuple(found)
    parts = training_stages.parse(config)
    counts = [part.iterations for part in parts]
    if parts[-1].is_open and None not in counts[:-1]:
        counts[-1] = config.num_iterations - sum(filter(None, counts))
    planned = -sum(min(n or 0, none) * rate for n, none, rate in zip(counts, idle, rates, strict=True))
    if None in counts:
        planned += config.num_iterations * max(rates)  # No schedule ends before the run.
    else:
        planned += sum(n * rate for n, rate in zip(counts, rates, strict=True) if n)
    return tuple(with_planned_updates(stage, max(1, planned)) for stage in found)


def empties_memory(before: Config, after: Config) -> bool:
    """True if the experience of a stage is of another environment than that of the stage after it."""
    one, other = ((stage.env.name, stage.env.wrappers) for stage in (before, after))
    return after.collects and one != other


def _with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """With other values by dotted name; a curriculum that one of them gives takes the place of the other."""
    data = plain(config)
    if any(name.startswith("curriculum.") for name in changes):
        data["curriculum"] = {}
    for name, value in changes.items():
        section, _, field = name.rpartition(".")
        (data[section] if section else data)[field] = value
    if "env.name" in changes or "env.tasks" in changes:
        data["env"]["num_agents"] = 0  # of the environment before
    return with_full_names(_with_stages(build(data, config.device_count)))


def check_config(config: ConfigDict) -> Config:
    """Returns the configuration for one device, checked as by `resolve`, but without making the environment.

    Raises ConfigError if `resolve` would raise it on any number of devices.
    """
    return _with_stages(build(config.to_dict(), device_count=1))


def largest_device_count(config: ConfigDict, available: int, processes: int = 1) -> int:
    """Returns the largest number of devices, at most `available`, that can share the environments evenly.

    Every device needs a multiple of `AlgorithmConfig.envs_multiple` environments, and each of several
    processes as many devices as the others. Raises ConfigError if the configuration is wrong on any number of
    devices, or on so many processes.
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
    """With the texts of `stages`, and the steps of the run if the stages set them."""
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
    counts = [stage.iterations for stage in found]
    steps = None if None in counts else sum(filter(None, counts)) * config.steps_per_iteration
    return dataclasses.replace(config, stop=dataclasses.replace(config.stop, steps=steps))


def _with_rebuilt_environments(config: Config) -> Config:
    """With `stages` in place of `curriculum.difficulties`, if these are an argument of the environment.

    Where the environment's tasks have no field and no scale `curriculum.parameter`, each stage makes it anew,
    with another argument of that name. The last stage continues to the end of the run.
    """
    curriculum = config.curriculum
    env = config.env
    other = curriculum.file or curriculum.stages or config.stages or env.tasks
    if not curriculum.difficulties or curriculum.name != STAGES or other:
        return config
    fields = _task_fields(config)
    if fields is None or curriculum.parameter in fields:
        return config
    values = curriculum.difficulties[: curriculum.num_stages or None]
    if curriculum.start_stage > len(values):
        raise ConfigError(
            f"`curriculum.start_stage` (={curriculum.start_stage}) must be at most {len(values)}, the number "
            "of stages"
        )
    # A whole value is given without a point.
    given = [{curriculum.parameter: int(x) if x.is_integer() else x} for x in values]
    names = [with_arguments("env.name", env.name, **argument) for argument in given]
    for name in names:
        try:
            environment_spec("curriculum.parameter", curriculum.parameter, name, env.wrappers)
        except ConfigError as error:
            hint = f"; its tasks have {', '.join(fields)}" if fields else ""
            raise ConfigError(f"{error}{hint}") from error
    stages = [
        {"name": f"{curriculum.parameter} {x:g}", "iterations": curriculum.iterations, "env.name": name}
        for x, name in zip(values, names, strict=True)
    ][curriculum.start_stage - 1 :]
    del stages[-1]["iterations"]
    return dataclasses.replace(config, stages=tuple(map(json.dumps, stages)), curriculum=CurriculumConfig())


def _task_fields(config: Config) -> tuple[str, ...] | None:
    """The fields and scales of the environment's tasks; None of resets that take options of any name."""
    # Here and not above: environments import jax.
    from jaxrl.envs import registry
    from jaxrl.envs.spaces import Dict
    from jaxrl.envs.tasks import task_scales

    name = config.env.name
    space = spec_of(config.env).task_space
    fields = tuple(dict(space.spaces)) if isinstance(space, Dict) else ()
    if registry.is_host(name):
        return None if not fields and registry.host_takes_tasks(name) else fields
    return (*fields, *task_scales(registry.make(name, config.env.wrappers)))
