"""The environments of suites, each in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrl.envs import installation, registry
from jaxrl.envs.adapters.suite import load
from jaxrl.envs.modules import one_line
from jaxrl.envs.spaces import Box, Dict, Discrete, Mixed, MultiDiscrete, Space
from jaxrl.envs.suites import Collection, Entry

_MOST_LISTED = 50  # components of a space with equal components


def entry_of(name: str) -> Entry:
    """Makes the environment `suite:Name` and describes it.

    Raises:
      ValueError: one line; it cannot be made.
    """
    try:
        spec = registry.spec_of(name)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{name}: {' '.join(str(error).split()).removeprefix(name).lstrip(': ')}") from error
    except Exception as error:  # whatever a suite makes of it
        raise ValueError(f"{name}: {one_line(error)}") from error
    spaces = describe(spec.observation_space), describe(spec.action_space)
    return Entry(*spaces, bool(spec.has_action_mask), int(spec.max_episode_steps or 0))


def listed(suite: Collection) -> Sequence[str]:
    """The names of its environments, without the suite's; ImportError if it is not installed."""
    if not suite.is_installed:
        extra = f": {installation.command(suite.extra)}" if suite.extra else ""
        raise ImportError(f"{suite.name}: environments need the package {suite.package}{extra}")
    if suite.name == "gymnasium":
        return sorted(load("gymnasium", "gymnasium").registry)
    if suite.name == "envpool":
        return sorted(load("envpool", "envpool").list_all_envs())
    if suite.name == "pettingzoo":
        from jaxrl.envs.adapters import pettingzoo

        return pettingzoo.names()
    return [name.partition(":")[2] for name in registry.names(suite.name)]


def describe(space: Space) -> str:
    """A space in words: `Discrete(4)`, `float32[84, 84, 3] in [0, 1]`."""
    if isinstance(space, Dict | Mixed):
        return ", ".join(
            f"{name}: ({describe(part)})" if isinstance(part, Dict) else f"{name}: {describe(part)}"
            for name, part in space.spaces
        )
    if isinstance(space, Discrete):
        return f"Discrete({space.n}{_start(space)})"
    if isinstance(space, Box):
        low = min(space.low)
        high = max(space.high)
        bounds = "" if low == -np.inf and high == np.inf else f" in [{low:g}, {high:g}]"
        return f"{np.dtype(space.dtype)}{list(space.shape)}{bounds}"
    if len(space.nvec) > _MOST_LISTED and len({*space.nvec}) == 1:
        return f"MultiDiscrete[{space.nvec[0]}, ...], {len(space.nvec)} times{_start(space)}"
    return f"MultiDiscrete{list(space.nvec)}{_start(space)}"


def _start(space: Discrete | MultiDiscrete) -> str:
    if not space.start:
        return ""
    return f", start={space.start if isinstance(space, Discrete) else list(space.start)}"
