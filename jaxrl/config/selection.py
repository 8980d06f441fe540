"""Configs for another environment: the shipped one that suits it, and what a config says of its own alone."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jaxrl.config.declarations import declared_fields
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import shown
from jaxrl.config.files import load_config
from jaxrl.config.overrides import assign

if TYPE_CHECKING:
    from envs.base import EnvSpec

_NATURE_SIDE = 36  # pixels; the least that the three strided convolutions take
# Environments that a shipped config was made for, where their spaces do not tell.
_MADE_FOR = {
    "gymnax:MemoryChain-bsuite": "ppo_memory",
    "jaxrl:Navigation": "ppo_navigation",
    "jaxrl:Platformer": "ppo_platformer",
    "jaxrl:ProbeMemory": "ppo_memory",
}
# What a config says of its own environment and of no other: what is seen of it, its scale of rewards, and when
# it counts as solved.
_OF_ENVIRONMENT = ("env.wrappers", "env.success", "stop.return", "evaluate.unseen", "evaluate.suite")
_OF_LEVELS = ("stop.return", "evaluate.unseen", "evaluate.suite")
_SCALES = ("normalize.observations", "normalize.rewards", "normalize.clip_rewards")
_ASK = "import sys; from jaxrl.config import selection; sys.exit(selection.tell(sys.argv[1]))"


@dataclasses.dataclass(frozen=True)
class SuitableConfig:
    """A shipped config, changed to train on another environment, and why it was chosen."""

    name: str
    reason: str
    config: ConfigDict


def move(config: ConfigDict, environment: str, given: Collection[str] = ()) -> str:
    """Sets `env.name` of `config`, and the fields that it says of its own environment alone to their defaults.

    The same environment of another suite, or with other arguments, keeps them.

    Args:
      config: any, whole or in parts.
      environment: `suite:Name` or `suite:Name(argument=value)`.
      given: names of fields that the user sets beside it, of which nothing is said.

    Returns:
      what was left out and which scales were kept, in words; "" if that is nothing.
    """
    own = str(_value(config, "env.name"))
    left_out = []
    if _task(own) != _task(environment):
        left_out = _reset(config, _OF_ENVIRONMENT, given)
    assign(config, "env.name", environment)
    if not left_out:
        return ""
    scales = [name for name in _SCALES if name not in given and _value(config, name)]
    kept = f"; kept {_listed(config, scales)}" if scales else ""
    return f"left out what is said of {own} alone: {', '.join(left_out)}{kept}"


def suitable_config(environment: str) -> SuitableConfig:
    """Returns the shipped config that suits `environment`.

    What the config says of its own environment alone is left out, as by `move`; of the same environment with
    other arguments the return at which to stop, unseen levels and suites.

    Raises:
      ConfigError: there is no such environment.
    """
    # To make an environment may start jax's devices, which must not happen before they are chosen.
    path = os.pathsep.join(p for p in sys.path if p)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    asked = subprocess.run([sys.executable, "-c", _ASK, environment], env=env, capture_output=True, text=True)
    lines = (asked.stdout if asked.returncode in (0, 2) else asked.stderr).strip().splitlines()
    if asked.returncode:
        raise ConfigError(f"`--env` (={environment!r}): {lines[-1] if lines else 'cannot be made'}")
    name, reason = lines[-1].split(" ", 1)
    config = load_config(name)
    move(config, environment)
    _reset(config, _OF_LEVELS)
    return SuitableConfig(name, f"{reason}, so the config is {name}", config)


def tell(environment: str) -> int:
    """Prints the name of the config and the reason, or what is wrong; returns the exit code (2: wrong)."""
    from envs import modules, registry

    try:
        spec = registry.spec_of(environment, ())
    except (ValueError, ImportError) as error:
        print(" ".join(str(error).split()))
        return 2
    except Exception as error:
        print(f"making it raised {modules.one_line(error)}")
        return 2
    print(*choose(spec, registry.is_host(environment)))
    return 0


def choose(spec: EnvSpec, on_host: bool) -> tuple[str, str]:
    """Returns the name of the config that suits the environment, and what it goes by."""
    from envs.base import Box, is_large_image

    own = _without_arguments(spec.name)
    if own in _MADE_FOR:
        return _MADE_FOR[own], f"there is a config for {own}"
    observation = spec.observation_space
    if isinstance(observation, Box) and len(observation.shape) == 3:
        *sides, channels = observation.shape
        if not is_large_image(observation.shape):
            return "ppo_minatar", "observations are small images"
        if channels > 3 and min(sides) >= _NATURE_SIDE:
            return "ppo_atari", "observations are stacked frames"
        return "ppo_coinrun", "observations are single images"
    if isinstance(spec.action_space, Box):
        return "ppo_mujoco" if on_host else "ppo_continuous", "actions are continuous"
    return "ppo_mlp", "actions are discrete, and observations are taken to show the whole state"


def _reset(config: ConfigDict, names: Collection[str], given: Collection[str] = ()) -> list[str]:
    """Sets fields to their defaults; returns those that said something else, unless they are in `given`."""
    changed = []
    for name in names:
        default = declared_fields()[name].default
        if _value(config, name) not in (None, default):
            changed += [] if name in given else [_listed(config, [name])]
            assign(config, name, default)
    return changed


def _value(config: ConfigDict, name: str) -> Any:
    section, _, field = name.partition(".")
    return config[section][field] if section in config and field in config[section] else None


def _listed(config: ConfigDict, names: Collection[str]) -> str:
    return ", ".join(f"{name}={shown(_value(config, name))}" for name in names)


def _task(environment: str) -> str:
    """The name without arguments, and without the suite where several suites have environments of that name."""
    name = _without_arguments(environment)
    # Only names of suites have versions: CartPole-v1 is the same task in gymnax, envpool and Gymnasium.
    return re.split("[:/]", name)[-1] if re.search(r"-v\d+$", name) else name


def _without_arguments(environment: str) -> str:
    return environment.partition("(")[0]
