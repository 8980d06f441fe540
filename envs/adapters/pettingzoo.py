"""PettingZoo's parallel environments (Terry et al. 2021) as `HostEnv`: each agent is a row."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs import installation, modules
from jaxrl.envs.adapters.gymnasium import declared_reports
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host import workers
from jaxrl.envs.host.agent_spaces import AgentSpaces
from jaxrl.envs.host.memory import SharedArrays
from jaxrl.envs.host.spaces import action_space, observation_space, observation_tree, space_of
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.host_env import HostEnv, HostEnvError, HostOptions, HostStep, group_environments, group_rows
from jaxrl.envs.names import format_call, parse_call, unknown

_SLOT = "parallel_slot.py"
_PARALLEL = "parallel_env"  # what every module of PettingZoo calls the function that makes one


def make(name: str, /, keys: Sequence[str] = (), **kwargs: Any) -> PettingZooFactory:
    """Checks in a separate process that `name` can be made, and returns its factory.

    Args:
      name: of PettingZoo or MPE2 (`simple_spread_v3`, `sisl/pursuit_v5`), or `module:attribute`, a class of
        parallel environments or a function whose name ends in `parallel_env`.
      keys: where observations are dicts, the parts to keep; all if empty.
      kwargs: passed on to the environment.

    Raises:
      ValueError: the name is unknown, the environment is turn-based or cannot be made, or its agents cannot
        share a policy.
      ImportError: PettingZoo is not installed.
    """
    return _make(format_call(name, kwargs), tuple(keys))


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The module that making the environment imports because its name says so; None if it says none."""
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


class PettingZooFactory:
    """A parallel environment that has been made once, to learn its spaces.

    Args:
      label: its name.
      target: the `module:attribute` that makes it, with `kwargs`.
      spaces: of its agents.
      found: what the worker says of it, see `parallel_slot.description`.
      with_state: whether stored observations hold the state of the whole.
    """

    def __init__(
        self,
        label: str,
        target: str,
        kwargs: dict[str, Any],
        spaces: AgentSpaces,
        found: dict[str, Any],
        with_state: bool = False,
    ):
        self.target, self.kwargs, self.spaces = target, kwargs, spaces
        self._found, self._label, self._with_state = found, label, with_state
        limit = found["limit"]
        self._limit = limit if isinstance(limit, int) and limit > 0 else None
        self._has_masks = found["masks"] is not None or spaces.differ_in_choices
        self.state_leaf: Leaf | None = found["state"] if with_state else None
        self.spec = EnvSpec(
            name=label,
            observation_space=observation_space(spaces.obs_leaves),
            action_space=action_space(spaces.action_leaf),
            max_episode_steps=self._limit,
            has_action_mask=self._has_masks,
            reports=found["reports"],
            agents=tuple(map(str, found["agents"])),
            central_observation=None if found["state"] is None else space_of(found["state"]),
        )

    def with_central(self) -> PettingZooFactory:
        return PettingZooFactory(self._label, self.target, self.kwargs, self.spaces, self._found, True)

    def decode(self, obs: Any) -> Any:
        return obs["obs"] if self._has_masks or self._with_state else obs

    def action_mask(self, obs: Any) -> Any:
        return obs["mask"] if self._has_masks else None

    def central(self, obs: Any) -> Any:
        return obs["central"]

    def require_info(self, key: str) -> None:
        """Accepts every key: the infos of an environment are known only when they come."""

    def start(self, options: HostOptions) -> HostEnv:
        return PettingZooEnv(self, options)

    def setup(self, options: HostOptions) -> dict[str, Any]:
        """The instructions for workers, see `workers.setup_of`."""
        return workers.setup_of(
            _SLOT,
            self.target,
            self.kwargs,
            agents=self._found["agents"],
            masks=self._found["masks"],
            obs_leaves=self.spaces.obs_by_agent,
            action_leaves=self.spaces.action_by_agent,
            num_choices=self.spaces.num_choices,
            state_leaf=self.state_leaf,
            limit=self._limit,
            seeds=options.seeds,
            first_episode_steps=options.first_episode_steps,
            info_keys=options.info_keys,
        )

    def arrays(self, options: HostOptions) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of what workers fill, of N environments and their N * A rows."""
        n = len(options.seeds)
        b = n * self.spec.num_agents
        action = self.spaces.action_leaf
        leaves = enumerate(self.spaces.obs_leaves)
        state = self.state_leaf
        return {
            **{f"obs{i}": ((b, *leaf["shape"]), leaf["stored"]) for i, leaf in leaves},
            "reward": ((b,), np.float32),
            "outcome": ((b, 3), bool),  # terminated, truncated, first
            "action": ((b, *action["shape"]), action["stored"]),
            "mask": ((b, self.spec.mask_size if self._has_masks else 0), bool),
            "state": ((b, *state["shape"]), state["stored"]) if state else ((b, 0), np.float32),
            "team": ((n, 3), bool),  # likewise, of the environments
            "info": ((n, len(options.info_keys)), np.float32),
        }

    def answer(
        self, arrays: Mapping[str, np.ndarray], rows: slice, environments: slice, info_keys: Sequence[str]
    ) -> HostStep:
        """The step that those rows and environments of the arrays hold; in place."""
        count = len(self.spaces.obs_leaves)
        obs = observation_tree(self.spaces.obs_leaves, [arrays[f"obs{i}"][rows] for i in range(count)])
        beside = {"mask": arrays["mask"][rows]} if self._has_masks else {}
        beside |= {"central": arrays["state"][rows]} if self._with_state else {}
        reward, outcome = arrays["reward"][rows], arrays["outcome"][rows].T
        team_reward = reward.reshape(-1, self.spec.num_agents).sum(axis=1)
        info = dict(zip(info_keys, arrays["info"][environments].T, strict=True))
        team = _step(None, team_reward, arrays["team"][environments].T, info)
        return dataclasses.replace(
            _step({"obs": obs} | beside if beside else obs, reward, outcome), team=team
        )


def _step(obs: Any, reward: np.ndarray, outcome: np.ndarray, info: dict[str, Any] | None = None) -> HostStep:
    terminated, truncated, first = outcome
    return HostStep(
        obs=obs,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        first=first,
        score=reward,
        game_over=terminated | truncated,
        info=info or {},
    )


class PettingZooEnv(HostEnv):
    """B environments in worker processes, see `HostEnv`; the score of a step is its reward."""

    def __init__(self, factory: PettingZooFactory, options: HostOptions):
        self.spec, self._factory = factory.spec, factory
        self.num_envs, self.num_groups, self.timeout = len(options.seeds), options.num_groups, None
        split = workers.rows_of_workers(self.num_envs, self.num_groups, options.num_workers)
        progress = {"progress": ((sum(map(len, split)), 2), np.int64)}
        self._arrays = SharedArrays({**factory.arrays(options), **progress})
        self._info_keys = options.info_keys
        self._workers = workers.Workers(
            self.spec.name, factory.setup(options), self._arrays, split, options.timeout
        )

    @property
    def process_ids(self) -> list[int]:
        """Of the worker processes that have not been stopped."""
        return self._workers.process_ids

    def send(self, group: int, action: np.ndarray) -> None:
        self._arrays["action"][group_rows(self, group)] = action
        self._workers.send(group)

    def recv(self, group: int) -> HostStep:
        self._workers.recv(group)
        rows, environments = group_rows(self, group), group_environments(self, group)
        return self._factory.answer(self._arrays, rows, environments, self._info_keys)

    def decode(self, obs: Any) -> Any:
        return self._factory.decode(obs)

    def action_mask(self, obs: Any) -> Any:
        return self._factory.action_mask(obs)

    def interrupt(self) -> None:
        self._workers.interrupt()

    def close(self) -> None:
        self._workers.close()
