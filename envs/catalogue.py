"""The environments of suites: each in words, and by the names that they have elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from jaxrl.envs import installation, registry, suites
from jaxrl.envs.adapters.suite import load
from jaxrl.envs.modules import one_line
from jaxrl.envs.names import unknown
from jaxrl.envs.spaces import Box, Dict, Discrete, Mixed, MultiDiscrete, Space
from jaxrl.envs.suites import Collection, Entry

_MOST_LISTED = 50  # components of a space with equal components
# Names in suites that the table lacks; a suite lists its own names only once it is imported.
_PATTERNS = {
    "craftax": r"Craftax-.*",
    "gymnasium": r"(Acrobot|Ant|BipedalWalker|Blackjack|CarRacing|CartPole|CliffWalking|FrozenLake"
    r"|HalfCheetah|Hopper|Humanoid|LunarLander|MountainCar|Pendulum|Pusher|Reacher|Swimmer|Taxi|Walker2d)\w*-v\d+|ALE/.*-v5",
    "pettingzoo": r"(simple|simple_\w+|cooperative_pong|knights_archers_zombies|multiwalker|pistonball"
    r"|pursuit)_v\d+",
}


def entry_of(name: str) -> Entry:
    """Makes the environment `suite:Name` and describes it; ValueError, one line, if it cannot be made."""
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


def find(name: str) -> list[str]:
    """The environments of installed suites with that name, as `suite:Name(arguments)`, the device's first.

    The name has no suite, and may have arguments; small and capital letters count as the same.
    """
    short, parenthesis, arguments = name.partition("(")
    spellings = {spelling.lower() for spelling in _spellings(short.strip())}
    found = []
    for suite in suites.SUITES:
        if suite.is_installed:
            known = [x for x in _names(suite) if x.lower() in spellings]
            exact = [x for x in known if x == short.strip()]
            found += [f"{suite.name}:{x}{parenthesis}{arguments}" for x in exact or known]
    return found


def missing(name: str) -> list[str]:
    """The suites that are not installed and may have the environment, each with what installs it."""
    short = name.partition("(")[0].strip()
    return [
        f"{suite.name}, which is not installed: {installation.command(suite.extra)}"
        for suite in suites.SUITES
        if not suite.is_installed and _may_have(suite, short)
    ]


def not_found(name: str) -> ValueError:
    """The error for a name that no installed suite has; it lists what may have to be installed."""
    if lacking := missing(name):
        return ValueError(f"{name!r} may be an environment of {'; or of '.join(lacking)}")
    short = name.partition("(")[0]
    known = [f"{s.name}:{x}" for s in suites.SUITES if s.is_installed for x in _names(s)]
    near = unknown("environment", short, {x.partition(":")[2] for x in known})
    absent = [suite.name for suite in suites.SUITES if not suite.is_installed]
    more = f"; suites that are not installed: {', '.join(absent)} (jaxrl environments)" if absent else ""
    return ValueError(f"{near}{more}")


def _names(suite: Collection) -> Sequence[str]:
    found = suites.known(suite)
    return listed(suite) if found is None else [*found, *suites.registered(suite)]


def _may_have(suite: Collection, name: str) -> bool:
    """True if a suite has that environment, as far as it is known without the suite."""
    in_table = name.lower() in map(str.lower, suites.in_table(suite))
    return in_table or bool(re.fullmatch(_PATTERNS.get(suite.name, ""), name, re.IGNORECASE))


def _spellings(name: str) -> Iterator[str]:
    """The name, and as suites here spell it: without a namespace, procgen's with their mode, POPGym's."""
    yield name
    last = re.split("[:/]", name)[-1]
    if procgen := re.fullmatch(r"procgen-(\w+)-v0", last, re.IGNORECASE):
        yield f"{procgen[1]}Hard-v0"  # procgen's own default
    elif popgym := re.fullmatch(r"popgym-(\w+)-v0", last, re.IGNORECASE):
        # An early release called position-only tasks stateless.
        yield f"memory/{popgym[1].replace('Stateless', 'PositionOnly')}"
    elif last:
        yield last
