"""A list of difficulties that no task has: stages of training, each with its environment."""

from __future__ import annotations

import dataclasses
import json

from jaxrl.config.configuration import Config
from jaxrl.config.curriculum import STAGES, CurriculumConfig
from jaxrl.config.environment import environment_spec, spec_of
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import with_arguments


def with_rebuilt_environments(config: Config) -> Config:
    """With `stages` in place of `curriculum.difficulties`, if these are an argument of the environment.

    Where the environment's tasks have no field and no scale `curriculum.parameter`, each stage makes it anew,
    with another argument of that name. The last stage continues to the end of the run.

    Raises:
      ConfigError: the environment cannot be made, with that argument or without.
    """
    curriculum = config.curriculum
    env = config.env
    listed = bool(curriculum.difficulties) and curriculum.name == STAGES
    other = curriculum.file or curriculum.stages or config.stages or env.tasks
    if not listed or other:
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
    names = [_name_with(env.name, curriculum.parameter, x) for x in values]
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


def _name_with(name: str, parameter: str, value: float) -> str:
    """The name of the environment with another value of an argument, a whole one without a point."""
    return with_arguments("env.name", name, **{parameter: int(value) if value.is_integer() else value})
