"""The suites that there are, installed or not, and their environments from a table; imports none of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.envs import entry_points
from jaxrl.envs.names import unknown

ENTRY_POINTS = "jaxrl.environments"


@dataclasses.dataclass(frozen=True)
class Collection:
    """A collection of environments."""

    name: str  # as in `name:Environment`
    package: str  # what it is imported from, "" for this project's own
    extra: str  # of this package, which installs it; "" if nothing is needed
    on_host: bool  # its environments run on the host, not on the device
    about: str  # in a few words

    @property
    def is_installed(self) -> bool:
        """True if the package is there; it is not imported."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    @property
    def version(self) -> str:
        """The version of the package that is installed; "" of this project's own environments."""
        name = _DISTRIBUTIONS.get(self.package, self.package)
        return importlib.metadata.version(name) if name else ""


# What packages are installed as, if not by the name that is imported.
_DISTRIBUTIONS = {"mujoco_playground": "playground"}

SUITES = (
    Collection("jaxrl", "", "", False, "memory tasks, navigation, a platform game"),
    Collection("gymnax", "gymnax", "", False, "classic control, bsuite, MinAtar"),
    Collection("brax", "brax", "brax", False, "rigid bodies: Ant, Humanoid, Reacher"),
    Collection("craftax", "craftax", "craftax", False, "Craftax and Craftax-Classic"),
    Collection("jaxmarl", "jaxmarl", "jaxmarl", False, "several agents: MPE, SMAX, Overcooked, Hanabi"),
    Collection("jumanji", "jumanji", "jumanji", False, "combinatorial problems and games"),
    Collection("navix", "navix", "navix", False, "MiniGrid in JAX"),
    Collection("pgx", "pgx", "pgx", False, "board games, MinAtar"),
    Collection("playground", "mujoco_playground", "playground", False, "MuJoCo: the DeepMind Control Suite"),
    Collection("popgym_arcade", "popgym_arcade", "popgym_arcade", False, "games of pixels that need memory"),
    Collection("xminigrid", "xminigrid", "xminigrid", False, "XLand-MiniGrid, MiniGrid's memory"),
    Collection("envpool", "envpool", "", True, "C++: Atari, Procgen, MuJoCo, MiniGrid"),
    Collection("gymnasium", "gymnasium", "gymnasium", True, "what Gymnasium has registered, and your own"),
    Collection("pettingzoo", "pettingzoo", "pettingzoo", True, "several agents in Python, and your own"),
)

# The table has none of these: to describe one of their environments takes a process.
WITHOUT_TABLE = {"gymnasium", "pettingzoo"}


def suite_of(name: str) -> Collection:
    found = {suite.name: suite for suite in SUITES}
    if name not in found:
        raise unknown("suite", name, found)
    return found[name]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An environment in words."""

    observation: str  # its space
    action: str  # its space
    has_mask: bool  # some actions are impossible at times
    most_steps: int  # the time limit of an episode; 0 if none is known


# Made from the installed suites by `python .ci/suites.py`: importing a suite takes seconds, and so does
# making each of its environments.
TABLE = Path(__file__).with_name("suites.json")


def known(suite: Collection) -> Mapping[str, Entry | None] | None:
    """The environments of a suite from the table, by name; imports nothing.

    An entry is None if its environment could not be made when the table was. The whole is None if the table
    is of another series than what is installed: an environment of 1.2.5 is hardly ever another in 1.2.7.
    """
    found = _table().get(suite.name)
    if found is None or not suite.is_installed or _series(found["version"]) != _series(suite.version):
        return None
    return {name: Entry(*entry) if entry else None for name, entry in found["environments"].items()}


def known_version(suite: Collection) -> str | None:
    """The version of a suite that the table is of; None if it has none."""
    found = _table().get(suite.name)
    return None if found is None else str(found["version"])


def _series(version: str) -> list[str]:
    return version.split(".")[:2]


def in_table(suite: Collection) -> Sequence[str]:
    """The names of a suite's environments in the table, of whatever version it knows."""
    found = _table().get(suite.name)
    return list(found["environments"]) if found else ()


def registered(suite: Collection) -> set[str]:
    """The environments that installed packages add to a suite, by name."""
    points = (name.partition(":") for name in entry_points.names(ENTRY_POINTS))
    return {name for home, _, name in points if home == suite.name}


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}
