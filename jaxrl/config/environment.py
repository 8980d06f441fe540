"""The environment of a configuration: its name with a suite, and what is checked of it, which imports jax."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrl.config.configuration import Config
from jaxrl.config.curriculum import STAGES
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.fields import with_arguments
from jaxrl.config.sections import EnvConfig, Success
from jaxrl.config.stages import parse

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec

_LONGEST = 1000  # characters of a name; more is none
_ASK = "import sys; from jaxrl.config import {module}; sys.exit({module}.tell(sys.argv[1]))"


def full_name(field: str, environment: str) -> tuple[str, str]:
    """Returns `suite:Name` for a name that may lack the suite, and in words which suites have it.

    The name is as elsewhere: `CartPole-v1`, `ALE/Pong-v5`. If no suite has it, a ConfigError about `field`
    lists what may have to be installed.
    """
    if not _is_short(environment):
        return environment, ""
    first, *others = ask("environment", field, environment).split("\t")
    also = f"; also {', '.join(others)}" if others else ""
    return first, f"{environment} is {first}{also}"


def full_name_here(field: str, environment: str) -> str:
    """The name of `full_name`, found in this process, which must have chosen its devices."""
    if not _is_short(environment):
        return environment
    from jaxrl.envs import catalogue, modules

    try:
        found = catalogue.find(environment)
        if not found:
            raise catalogue.not_found(environment)
    except Exception as error:  # whatever a suite raises when it is imported for its names
        reason = " ".join(str(error).split()) if isinstance(error, ValueError) else modules.one_line(error)
        raise ConfigError(f"`{field}` (={environment!r}): {reason}") from error
    return found[0]


def tell(environment: str) -> int:
    """Prints the environments of that name, or what is wrong; returns the exit code (2: wrong)."""
    from jaxrl.envs import catalogue

    found = catalogue.find(environment)
    print("\t".join(found) if found else catalogue.not_found(environment))
    return 0 if found else 2


def import_path() -> str:
    """The folders from which this process imports, as PYTHONPATH names them."""
    return os.pathsep.join(p for p in sys.path if p)


def _is_short(environment: str) -> bool:
    short = environment.partition("(")[0]
    return bool(short and len(environment) <= _LONGEST and (":" not in short or short.startswith("procgen:")))


def ask(module: str, field: str, environment: str) -> str:
    """Returns the last line that `tell(environment)` of a module of this package prints, in its own process.

    To make an environment may start jax's devices, which must not happen before they are chosen. Raises
    ConfigError with that line if it returns another code than 0.
    """
    return _answer(module, field, environment, import_path())


# A configuration is checked more than once on its way to a run, and each question takes seconds. Errors are
# not kept: what is missing may be installed meanwhile.
@functools.cache
def _answer(module: str, field: str, environment: str, path: str) -> str:
    with errors_as(ConfigError, f"`{field}` (={environment!r})", ConfigError):
        return last_line(["-c", _ASK.format(module=module), environment], path)


def last_line(arguments: Sequence[str], path: str, sent: str = "") -> str:
    """The last line that Python prints on a CPU, with `sent` on its input; if it fails, a ConfigError."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    asked = subprocess.run([sys.executable, *arguments], env=env, input=sent, capture_output=True, text=True)
    lines = (asked.stdout if asked.returncode in (0, 2) else asked.stderr).strip().splitlines()
    if asked.returncode:
        raise ConfigError(lines[-1] if lines else "the environment cannot be made")
    return lines[-1]


_CENTRAL = "central_observation"  # the wrapper


def with_full_names(config: Config) -> Config:
    config = _with_tasks(config)
    env = full_name_here("env.name", config.env.name)
    wrappers = _with_central(config)
    unseen = full_name_here("evaluate.unseen", config.evaluate.unseen)
    return dataclasses.replace(
        config,
        env=dataclasses.replace(config.env, name=env, wrappers=wrappers),
        evaluate=dataclasses.replace(config.evaluate, unseen=unseen),
    )


def _with_tasks(config: Config) -> Config:
    """With the environment that `env.tasks` stands for."""
    env = config.env
    if not env.tasks:
        return config
    # Here and not above: environments import jax.
    from jaxrl.envs.mixture import mixture_name

    tasks = tuple(full_name_here("env.tasks", task) for task in env.tasks)
    name = mixture_name(tasks, env.task_shares)
    return dataclasses.replace(config, env=dataclasses.replace(env, tasks=tasks, name=name))


def _with_central(config: Config) -> tuple[str, ...]:
    """The wrappers; the last one gives the global state to a value function that sees it."""
    others = tuple(name for name in config.env.wrappers if name != _CENTRAL)
    if config.network.central_value:
        return (*others, _CENTRAL)
    if others != config.env.wrappers:
        raise ConfigError(
            f"`env.wrappers` (={config.env.wrappers}) has {_CENTRAL}, which `network.central_value` "
            "adds itself"
        )
    return others


def check_task_counts(config: Config) -> None:
    """Every device holds as many environments of each task as the others."""
    period = config.env.task_period
    shares = config.env.task_shares
    if shares and len(shares) != len(config.env.tasks):
        raise ConfigError(
            f"`env.task_shares` (={shares!r}) must be one number for each of the {len(config.env.tasks)} of "
            "`env.tasks`"
        )
    if config.envs_per_device % period:
        raise ConfigError(
            f"`env.num_envs` (={config.env.num_envs}) on {config.device_count} devices must be a multiple of "
            f"{period} on each, {_period_of(config)}"
        )


def _period_of(config: Config) -> str:
    return "the sum of `env.task_shares`" if config.env.task_shares else "the number of `env.tasks`"


def check_environment(c: Config) -> EnvSpec:
    """The spec of the environment; ConfigError unless it can be made, and meets the needs of other fields."""
    # Here and not above: environments import jax.
    from jaxrl.envs import registry

    field, value = ("env.tasks", c.env.tasks) if c.env.tasks else ("env.name", c.env.name)
    spec = environment_spec(field, value, c.env.name, ())
    if c.network.central_value and spec.central_observation is None:
        raise ConfigError(
            f"`network.central_value` (=True) needs a state of the whole environment, which {c.env.name} "
            "does not have"
        )
    if c.env.wrappers:
        spec = environment_spec("env.wrappers", c.env.wrappers, c.env.name, c.env.wrappers)
    with errors_as(ConfigError, f"`env.name` (={c.env.name!r})", ValueError):
        registry.check_custom(c.env.name)
    if c.evaluate.unseen:
        check_same_spaces("evaluate.unseen", c.evaluate.unseen, c.env)
    if c.env.success and (rule := Success.parse(c.env.success, "env.success")).is_info:
        for name in filter(None, (c.env.name, c.evaluate.unseen)):
            with errors_as(ConfigError, f"`env.success` (={c.env.success!r})", ValueError):
                registry.check_info_key(name, c.env.wrappers, rule.subject)
    by_stages = c.curriculum.name == STAGES
    has_tasks = spec.task_space is not None or (spec.task_names and by_stages)
    if registry.is_host(c.env.name):
        has_tasks = by_stages and registry.host_takes_tasks(c.env.name)
    if c.curriculum.is_used and not has_tasks:
        raise _takes_no_tasks(c)
    if c.selfplay.enabled:
        _check_game(c.env)
    groups = c.host.num_groups
    for name, count in (("env.num_envs", c.env.num_envs), ("host.num_workers", c.host.num_workers)):
        if registry.is_host(c.env.name) and c.collects and count % groups:
            raise ConfigError(f"`host.num_groups` (={groups}) must divide `{name}` (={count})")
    if c.env.tasks and c.evaluate.unseen:
        raise ConfigError(
            f"`evaluate.unseen` (={c.evaluate.unseen!r}) must be empty with `env.tasks`, whose tasks are "
            "evaluated"
        )
    if c.evaluate.episodes < c.env.task_period:
        least = f"{c.env.task_period}, {_period_of(c)}"
        raise ConfigError(f"`evaluate.episodes` (={c.evaluate.episodes}) must be at least {least}")
    return spec


def task_environment(given: str, env: EnvConfig, names: Sequence[str]) -> str:
    """The environment that plays one of several tasks alone, if `given` is its short name; else `given`.

    The tasks, with their short `names`, are those of the section `env` with which a policy was trained.
    """
    return with_arguments("env.name", env.name, only=given) if given in names else given


def check_same_spaces(field: str, name: str, env: EnvConfig) -> None:
    """Raises ConfigError unless the environment `name` has the same spaces as the configuration's."""
    other, own = (environment_spec(field, name, x, env.wrappers) for x in (name, env.name))
    for what in ("observation_space", "action_space", "agents"):
        if getattr(other, what) != getattr(own, what):
            raise ConfigError(f"`{field}` (={name!r}) has another {what} than `env.name` (={env.name!r})")


def require_spaces(env: EnvConfig, before: EnvConfig) -> None:
    """Raises ConfigError unless the policy of the stage before fits the environment."""
    own, other = (environment_spec("env.name", x.name, x.name, x.wrappers) for x in (env, before))
    for what in ("observation_space", "action_space"):
        if getattr(own, what) != getattr(other, what):
            raise ConfigError(
                f"`env.name` (={env.name!r}) has another {what} than {before.name}, of the stage before"
            )


def spec_of(env: EnvConfig) -> EnvSpec:
    """The spec of a configuration's environment; raises ConfigError if it cannot be made."""
    return environment_spec("env.name", env.name, env.name, env.wrappers)


def is_on_host(name: str) -> bool:
    """True of an environment that runs on the host, False of one that is JAX code."""
    from jaxrl.envs import registry

    return registry.is_host(name)


def environment_spec(field: str, value: Any, name: str, wrappers: tuple[str, ...]) -> EnvSpec:
    """Returns the spec of the environment `name` with its wrappers, from the innermost to the outermost.

    Raises ConfigError, with the `field` that names it or its wrappers and its `value`, if it cannot be made.
    """
    with errors_as(ConfigError, f"`{field}` (={value!r})", ConfigError):
        return make_spec(name, wrappers)


def make_spec(name: str, wrappers: tuple[str, ...] = ()) -> EnvSpec:
    """As `environment_spec`, with an error that does not say which field names the environment."""
    from jaxrl.envs import modules, registry

    try:
        return registry.spec_of(name, wrappers)
    except (ValueError, ImportError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except Exception as error:  # whatever code of a suite, or the user's, makes of its arguments
        raise ConfigError(f"making it raised {modules.one_line(error)}") from error


def _takes_no_tasks(c: Config) -> ConfigError:
    """The error about a curriculum of an environment without tasks; it names the first stage with one."""
    plain = f"`env.name` (={c.env.name!r}) takes no tasks, which `curriculum` would choose"
    for number, stage in enumerate(parse(c.curriculum.stages), 1):
        for field in stage.task:
            asked = f"`curriculum.stages`: stage {number}: `task.{field}`: {plain}"
            other = "`stages`, each with an `env.name` and a `return`, are a curriculum of whole environments"
            return ConfigError(f"{asked}; {other}")
    return ConfigError(plain)


def _check_game(env: EnvConfig) -> None:
    """Self-play has a two-player game, which both players see without wrappers."""
    from jaxrl.envs import registry
    from jaxrl.envs.games import game_of

    name = env.name
    if registry.is_host(name) or game_of(registry.make(name)) is None:
        raise ConfigError(f"`env.name` (={name!r}) is not a two-player game, which `selfplay.enabled` needs")
    if env.wrappers:
        raise ConfigError(
            f"`env.wrappers` (={env.wrappers}) must be empty with `selfplay.enabled`: a wrapper sees one seat"
        )
