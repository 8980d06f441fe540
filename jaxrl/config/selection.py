"""The shipped config that suits an environment: the best known one, or else one for its spaces."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jaxrl.config.data_files import read_yaml
from jaxrl.config.environment import ask, make_spec
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.files import load_config
from jaxrl.config.overrides import forget_levels, move
from jaxrl.config.text import counted

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec

TABLE = Path(__file__).with_name("known_environments.yaml")


@dataclasses.dataclass(frozen=True)
class MeasuredReturn:
    """Returns that were measured, as docs/results.md and the pages on suites have them.

    Attributes:
      score: of all seeds, lowest to highest, or what it is of ("95 to 96% successes").
      steps: of training, in millions.
      note: further conditions, such as how actions were chosen.
      seconds: of the whole process on two CPU cores or one, lowest to highest; "" if they were not taken.
      arguments: of the environment, such as "(max_steps=640)".
    """

    score: str
    steps: float
    seeds: int
    note: str = ""
    seconds: str = ""
    arguments: str = ""

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        note += f", with {self.arguments.strip('()')}" if self.arguments else ""
        return f"{self.score} after {self.steps:.1f} M steps{note} ({counted(self.seeds, 'seed')})"


@dataclasses.dataclass(frozen=True)
class PublishedReturn:
    """The published mean and deviation, or named statistic, its source, and millions of steps if stated."""

    score: str
    source: str
    steps: float | None = None

    def __str__(self) -> str:
        steps = f" after {self.steps:.1f} M steps" if self.steps else ""
        return f"{self.score}{steps} ({self.source})"


@dataclasses.dataclass(frozen=True)
class KnownEnvironment:
    """The shipped config to train an environment or a family of them with, and fields that differ from it.

    Attributes:
      names: of environments without arguments, or patterns of `fnmatch`.
      measured: the return that this reaches; None for a family or if it was not measured.
      published: published returns, best first.
    """

    names: tuple[str, ...]
    config: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    measured: MeasuredReturn | None = None
    published: tuple[PublishedReturn, ...] = ()


@functools.cache
def known_environments() -> tuple[KnownEnvironment, ...]:
    """The entries of the table, in its order; ValueError if one has a wrong key or type, or lacks a key."""
    found = []
    for entry in read_yaml(TABLE)["environments"]:
        with errors_as(ValueError, f"{TABLE.name}: the entry {entry}", TypeError):
            found.append(_read_entry(**entry))
    return tuple(found)


def _read_entry(
    names: list[str],
    config: str,
    settings: Mapping[str, Any] | None = None,
    measured: Mapping[str, Any] | None = None,
    published: Sequence[Mapping[str, Any]] = (),
) -> KnownEnvironment:
    entry = KnownEnvironment(
        tuple(names),
        config,
        {key: tuple(x) if isinstance(x, list) else x for key, x in (settings or {}).items()},
        MeasuredReturn(**measured) if measured else None,
        tuple(PublishedReturn(**each) for each in published),
    )
    for each in (*([entry.measured] if entry.measured else []), *entry.published):
        for name, value in vars(each).items():
            # A score such as 28 is a number without its quotes.
            if value is not None and isinstance(value, str) == (name in ("steps", "seeds")):
                raise TypeError(f"{name} (={value!r}) is of another type")
    return entry


def known_environment(name: str) -> KnownEnvironment | None:
    """The entry of an environment, whatever its arguments; None for one that no entry names.

    An entry for the environment itself goes before one for its family. Wrappers take what the environment
    shows by default: with an argument `observation` an entry that has some does not count.
    """
    own, _, arguments = name.partition("(")
    known = [
        each
        for each in known_environments()
        if "env.wrappers" not in each.settings or not re.search(r"\bobservation *=", arguments)
    ]
    exact = (each for each in known if own in each.names)
    family = (each for each in known if any(fnmatch.fnmatchcase(own, pattern) for pattern in each.names))
    return next(exact, None) or next(family, None)


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
    other arguments the return at which to stop, unseen levels and suites. Raises ConfigError if it is none.
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
    from jaxrl.envs import registry

    try:
        print(*choose(make_spec(environment), registry.is_host(environment)))
    except ConfigError as error:
        print(error)
        return 2
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
