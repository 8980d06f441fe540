"""The shipped config that suits an environment: the one made for it, or else by its spaces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxrl.config.environment_process import ask
from jaxrl.config.files import load_config
from jaxrl.config.own_environment import forget_levels, move, without_arguments

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec

_NATURE_SIDE = 36  # pixels; the least that the three strided convolutions take
_MEMORY = "jaxrl:memory/"
# Environments that a shipped config was made for, where their spaces do not tell.
_MADE_FOR = {
    "gymnax:MemoryChain-bsuite": "ppo_memory",
    "jaxmarl:MPE_simple_spread_v3": "ippo_spread",
    "jaxrl:Maze": "ppo_maze",
    "jaxrl:Navigation": "ppo_navigation",
    "jaxrl:Platformer": "ppo_platformer",
    "jaxrl:ProbeMemory": "ppo_memory",
    "jaxrl:TicTacToe": "ppo_tictactoe",
}


@dataclasses.dataclass(frozen=True)
class SuitableConfig:
    """A shipped config, changed to train on another environment, and why it was chosen."""

    name: str
    reason: str
    config: ConfigDict


def suitable_config(environment: str) -> SuitableConfig:
    """Returns the shipped config that suits `environment`.

    What the config says of its own environment alone is left out, as by `move`; of the same environment with
    other arguments the return at which to stop, unseen levels and suites.

    Raises:
      ConfigError: there is no such environment.
    """
    name, reason = ask("selection", "--env", environment).split(" ", 1)
    config = load_config(name)
    move(config, environment)
    forget_levels(config)
    return SuitableConfig(name, f"{reason}, so the config is {name}", config)


def tell(environment: str) -> int:
    """Prints the name of the config and the reason, or what is wrong; returns the exit code (2: wrong)."""
    from jaxrl.envs import modules, registry

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
    from jaxrl.envs.base import Box, is_large_image

    own = without_arguments(spec.name)
    if own.startswith(_MEMORY):
        return "ppo_memory", "it is a task of memory"
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
