"""This project's own environments, the suite `jaxrl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.games import players
from jaxrl.envs.mixture import mixture
from jaxrl.envs.mixture import module_of as module_of_tasks
from jaxrl.envs.names import check_arguments, check_numbers
from jaxrl.envs.native import probe, probe_agents
from jaxrl.envs.native import probe_policy as policy
from jaxrl.envs.native.bit_flip import BitFlip
from jaxrl.envs.native.games import ENVIRONMENTS as GAMES
from jaxrl.envs.native.maze import Maze
from jaxrl.envs.native.memory import ENVIRONMENTS as MEMORY
from jaxrl.envs.native.navigation import Navigation
from jaxrl.envs.native.platformer import Platformer

_CLASSES = (
    *(BitFlip, Maze, Navigation, Platformer, probe_agents.ProbeAgents, probe.ProbeValue, policy.ProbeAction),
    *(probe.ProbeDiscount, probe.ProbeObservation, probe.ProbeTermination, probe.ProbeTruncation),
    *(policy.ProbeContinuous, policy.ProbeDict, policy.ProbeMask, policy.ProbeMemory, policy.ProbeMixed),
    *(policy.ProbeMultiDiscrete, policy.ProbePolicy),
)
_ENVIRONMENTS: dict[str, Callable[..., JaxEnv]] = {
    **{kind.__name__: kind for kind in _CLASSES},
    "Mixture": mixture,
    **GAMES,
    **MEMORY,
}


def names() -> Sequence[str]:
    return tuple(_ENVIRONMENTS)


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The module that creating an environment imports, from an argument; None if there is none.

    A task of a mixture and the opponent of a game may be of a module.
    """
    return module_of_tasks(arguments) if name == "Mixture" else players.module_of(arguments)


def make(name: str, **kwargs: Any) -> JaxEnv:
    """Makes one of `names()` with the arguments of its constructor."""
    check_arguments(f"jaxrl:{name}", _ENVIRONMENTS[name], kwargs)
    check_numbers(f"jaxrl:{name}", kwargs)
    return _ENVIRONMENTS[name](**kwargs)
