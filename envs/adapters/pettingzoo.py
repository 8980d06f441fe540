"""PettingZoo's parallel environments (Terry et al. 2021) as `HostEnv`: each agent is a row."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs import installation, modules
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host import workers
from jaxrl.envs.host.answers import choices_of, observed
from jaxrl.envs.host.spaces import AgentSpaces, action_space, observation_space, space_of
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.host.worker_env import Forms, WorkerFactory, declared_reports
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.envs.names import format_call, parse_call, unknown

_SLOT = "parallel_slot"
_PARALLEL = "parallel_env"  # what every module of PettingZoo calls the function that makes one


def make(name: str, /, keys: Sequence[str] = (), **kwargs: Any) -> PettingZooFactory:
    """Checks in a separate process that `name` can be made, and returns its factory.

    Args:
      name: of PettingZoo or MPE2 (`simple_spread_v3`, `sisl/pursuit_v5`), or `module:attribute`, a class of
        parallel environments or a function whose name ends in `parallel_env`.
      keys: if observations are dicts, the parts to keep; all if empty.
      kwargs: passed on to the environment.

    Raises:
      ValueError: the name is unknown, it is turn-based or fails, or its agents cannot share a policy.
      ImportError: PettingZoo is not installed.
    """
    return _make(format_call(name, kwargs), tuple(keys))


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    return name.rpartition(":")[0] or None


def names() -> list[str]:
    """The environments of PettingZoo and MPE2 that have a parallel form; ImportError if not installed."""
    places = _places().items()
    return sorted(name for name, (_, file) in places if "/" not in name and _PARALLEL in file.read_text())


@functools.cache
def _make(call: str, keys: tuple[str, ...]) -> PettingZooFactory:
    name, kwargs = parse_call(call)
    label = f"pettingzoo:{call}"
    target = _target(name)
    try:
        found = workers.describe(_SLOT, target, kwargs)
    except HostEnvError as error:
        raise ValueError(f"{label}: {error}") from error
    workers.require_made(label, found)
    found["reports"] = declared_reports(label, found["reports"])
    try:
        masked = all(map(choices_of, found["actions"].values()))
        if found["masks"] == "obs":
            found["obs"] = {agent: observed(x, masked, keys) for agent, x in found["obs"].items()}
        found["masks"] = found["masks"] if masked else None
        spaces = AgentSpaces.of(found["obs"], found["actions"], keys)
        return PettingZooFactory(label, target, kwargs, spaces, found)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error


def _target(name: str) -> str:
    """The `module:attribute` that makes it; ValueError if it is unknown."""
    if module := module_of(name, {}):
        modules.require_outside_runs(module)  # the worker would import it
        return name
    places = _places()
    if name not in places:
        raise unknown(
            "environment", f"pettingzoo:{name}", [f"pettingzoo:{x}" for x in places if "/" not in x]
        )
    return f"{places[name][0]}:{_PARALLEL}"


def _places() -> dict[str, tuple[str, Path]]:
    """(module, file) of every environment, by its name alone and with its family; none is imported."""
    found: dict[str, tuple[str, Path]] = {}
    for family, package, folder in _families():
        for file in sorted(folder.glob("*_v[0-9]*.py")):
            place = f"{package}.{file.stem}", file
            found.setdefault(file.stem, place)
            found.setdefault(f"{family}/{file.stem}", place)
    return found


def _families() -> Iterator[tuple[str, str, Path]]:
    """(name, package, folder); MPE2 first, which early releases of PettingZoo had inside as `mpe`."""
    spec = importlib.util.find_spec("pettingzoo")
    if spec is None:
        raise ImportError(f"pettingzoo: environments need its package: {installation.command('pettingzoo')}")
    mpe = importlib.util.find_spec("mpe2")
    for folder in map(Path, (mpe.submodule_search_locations or ()) if mpe else ()):
        yield "mpe2", "mpe2", folder
        yield "mpe", "mpe2", folder
    for folder in map(Path, spec.submodule_search_locations or ()):
        for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield inside.name, f"pettingzoo.{inside.name}", inside


class PettingZooFactory(WorkerFactory):
    """A parallel environment that has been made once, to learn its spaces.

    `found` is of `parallel_slot.description`; `with_state`: stored observations hold the global state.
    """

    slot = _SLOT

    def __init__(
        self,
        label: str,
        target: str,
        kwargs: dict[str, Any],
        spaces: AgentSpaces,
        found: dict[str, Any],
        with_state: bool = False,
    ):
        self.target = target
        self.kwargs = kwargs
        self.obs_leaves = spaces.obs_leaves
        self.action_leaf = spaces.action_leaf
        self._spaces = spaces
        self._found = found
        self._label = label
        limit = found["limit"]
        self._limit = limit if isinstance(limit, int) and limit > 0 else None
        self.state_leaf: Leaf | None = found["state"] if with_state else None
        has_masks = found["masks"] is not None or spaces.differ_in_choices
        self.beside = (("mask",) if has_masks else ()) + (("central",) if with_state else ())
        self.spec = EnvSpec(
            name=label,
            observation_space=observation_space(self.obs_leaves),
            action_space=action_space(self.action_leaf),
            max_episode_steps=self._limit,
            has_action_mask=has_masks,
            reports=found["reports"],
            agents=tuple(map(str, found["agents"])),
            central_observation=None if found["state"] is None else space_of(found["state"]),
            open_info=True,
        )

    def with_central(self) -> PettingZooFactory:
        return PettingZooFactory(self._label, self.target, self.kwargs, self._spaces, self._found, True)

    def central(self, obs: Any) -> Any:
        return obs["central"]

    def instructions(self, options: HostOptions) -> dict[str, Any]:
        return {
            "agents": self._found["agents"],
            "masks": self._found["masks"],
            "obs_leaves": self._spaces.obs_by_agent,
            "action_leaves": self._spaces.action_by_agent,
            "state_leaf": self.state_leaf,
            "limit": self._limit,
        }

    def own_arrays(self, options: HostOptions) -> Forms:
        n = len(options.seeds)
        state = self.state_leaf
        rows = n * self.spec.num_agents
        return {
            "central": ((rows, *state["shape"]), state["stored"]) if state else ((rows, 0), np.float32),
            "team": ((n, 3), bool),  # terminated, truncated, first of the environments
        }
