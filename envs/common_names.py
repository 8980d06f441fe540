"""Environments by the names that they have elsewhere: `CartPole-v1`, `procgen-coinrun-v0`, `ALE/Pong-v5`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jaxrl.envs import catalogue, installation, suites
from jaxrl.envs.names import unknown

# Names in suites that the table lacks; a suite lists its own names only once it is imported.
_PATTERNS = {
    "craftax": r"Craftax-.*",
    "gymnasium": r"(Acrobot|Ant|BipedalWalker|Blackjack|CarRacing|CartPole|CliffWalking|FrozenLake"
    r"|HalfCheetah|Hopper|Humanoid|LunarLander|MountainCar|Pendulum|Pusher|Reacher|Swimmer|Taxi|Walker2d)\w*-v\d+|ALE/.*-v5",
    "pettingzoo": r"(simple|simple_\w+|cooperative_pong|knights_archers_zombies|multiwalker|pistonball"
    r"|pursuit)_v\d+",
}


def find(name: str) -> list[str]:
    """The environments of installed suites with that name, as `suite:Name(arguments)`, the device's first.

    Args:
      name: without a suite, perhaps with arguments; small and capital letters count as the same.
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


def _names(suite: suites.Collection) -> Sequence[str]:
    """The names of an installed suite."""
    found = suites.known(suite)
    return catalogue.listed(suite) if found is None else [*found, *suites.registered(suite)]


def _may_have(suite: suites.Collection, name: str) -> bool:
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
