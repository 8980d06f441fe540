"""The shipped config that suits an environment: the one that is known to, or else by its spaces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxrl.config.common_names import ask
from jaxrl.config.files import load_config
from jaxrl.config.known_environments import KnownEnvironment, known_environment
from jaxrl.config.own_environment import forget_levels, move

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec

# Suites that every installation has; without arguments, nothing of their environments can be wrong.
_ALWAYS_THERE = ("gymnax:", "jaxrl:")
_NATURE_SIDE = 36  # pixels; the least that the three strided convolutions take


@dataclasses.dataclass(frozen=True)
class SuitableConfig:
    """A shipped config, changed to train on another environment, and why it was chosen."""

    name: str
    reason: str
    config: ConfigDict


def suitable_config(environment: str) -> SuitableConfig:
    """Returns the shipped config that suits `environment`.

    Settings for the config's own environment alone are left out, as by `move`; for the same environment with
    other arguments the return at which to stop, unseen levels and suites.

    Raises:
      ConfigError: there is no such environment.
    """
    known = known_environment(environment)
    if known is not None and environment in known.names and environment.startswith(_ALWAYS_THERE):
        name, reason = known.config, _known_to_suit(known)  # The remaining checks would take a second.
    else:
        name, reason = ask("selection", "--env", environment).split(" ", 1)
    config = load_config(name)
    move(config, environment)
    forget_levels(config)
    for field, value in known.settings.items() if known is not None else ():
        config.update_from_flattened_dict({field: value})
    return SuitableConfig(name, f"the config is {name}, since {reason}", config)


def _known_to_suit(known: KnownEnvironment) -> str:
    changed = f", with other values of {', '.join(known.settings)}" if known.settings else ""
    if known.measured is None:
        return f"it suits environments of this kind{changed}"
    return f"it was measured on this environment{changed}"


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
    """Returns the name of the config that suits the environment, and the reason."""
    from jaxrl.envs.base import Box, is_large_image
    from jaxrl.envs.pictures import picture_shape

    if known := known_environment(spec.name):
        return known.config, _known_to_suit(known)
    observation = spec.observation_space
    if isinstance(observation, Box) and (picture := picture_shape(observation.shape)):
        *sides, channels = picture
        if not is_large_image(observation.shape):
            return "ppo_minatar", "observations are small images"
        if channels > 3 and min(sides) >= _NATURE_SIDE:
            return "ppo_atari", "observations are stacked frames"
        return "ppo_coinrun", "observations are single images"
    if isinstance(spec.action_space, Box):
        return "ppo_mujoco" if on_host else "ppo_continuous", "actions are continuous"
    return "ppo_mlp", "actions are discrete, and observations are taken to show the whole state"
