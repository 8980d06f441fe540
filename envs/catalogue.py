"""The environments that there are: suites, installed or not, and each environment in words."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence

import numpy as np

from envs import installation, registry
from envs.names import unknown
from envs.spaces import Box, Dict, Discrete, Mixed, Space


@dataclasses.dataclass(frozen=True)
class Collection:
    """A collection of environments.

    Attributes:
      name: as in `name:Environment`.
      package: what it is imported from, "" for this project's own.
      extra: of this package, which installs it; "" where nothing is needed.
      on_host: whether its environments run on the host, not on the device.
      about: in a few words.
    """

    name: str
    package: str
    extra: str
    on_host: bool
    about: str

    @property
    def is_installed(self) -> bool:
        """True if the package is there; it is not imported."""
        return not self.package or importlib.util.find_spec(self.package) is not None


SUITES = (
    Collection("jaxrl", "", "", False, "navigation, a platform game, probes"),
    Collection("gymnax", "gymnax", "", False, "classic control, bsuite, MinAtar"),
    Collection("brax", "brax", "brax", False, "rigid bodies: Ant, Humanoid, Reacher"),
    Collection("craftax", "craftax", "craftax", False, "Craftax and Craftax-Classic"),
    Collection("jumanji", "jumanji", "jumanji", False, "combinatorial problems and games"),
    Collection("navix", "navix", "navix", False, "MiniGrid in JAX"),
    Collection("pgx", "pgx", "pgx", False, "board games, MinAtar"),
    Collection("playground", "mujoco_playground", "playground", False, "MuJoCo: the DeepMind Control Suite"),
    Collection("popgym_arcade", "popgym_arcade", "popgym_arcade", False, "games of pixels that need memory"),
    Collection("xminigrid", "xminigrid", "xminigrid", False, "XLand-MiniGrid, MiniGrid's memory"),
    Collection("envpool", "envpool", "", True, "C++: Atari, Procgen, MuJoCo, MiniGrid"),
    Collection("gymnasium", "gymnasium", "gymnasium", True, "what Gymnasium has registered, and your own"),
)


def suite_of(name: str) -> Collection:
    """The suite of that name; ValueError lists the valid ones."""
    found = {suite.name: suite for suite in SUITES}
    if name not in found:
        raise unknown("suite", name, found)
    return found[name]


def names(suite: Collection) -> Sequence[str]:
    """The names of its environments, without the suite's; ImportError if it is not installed."""
    if not suite.is_installed:
        extra = f": {installation.command(suite.extra)}" if suite.extra else ""
        raise ImportError(f"{suite.name}: environments need the package {suite.package}{extra}")
    if suite.name == "gymnasium":
        import gymnasium

        return sorted(gymnasium.registry)
    if suite.name == "envpool":
        import envpool

        return sorted(envpool.list_all_envs())
    return [name.partition(":")[2] for name in registry.names(suite.name)]


def describe(space: Space) -> str:
    """A space in words: `Discrete(4)`, `float32[84, 84, 3] in [0, 1]`."""
    if isinstance(space, Dict | Mixed):
        return ", ".join(
            f"{name}: ({describe(part)})" if isinstance(part, Dict) else f"{name}: {describe(part)}"
            for name, part in space.spaces
        )
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, Box):
        low, high = min(space.low), max(space.high)
        bounds = "" if low == -np.inf and high == np.inf else f" in [{low:g}, {high:g}]"
        return f"{np.dtype(space.dtype)}{list(space.shape)}{bounds}"
    return f"MultiDiscrete{list(space.nvec)}"
