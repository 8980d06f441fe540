"""Gymnasium environments as `HostEnv`, stepped in worker processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.base import Box, Dict, EnvSpec, InfoMetric
from jaxrl.envs.goals import KEYS, GoalExamples
from jaxrl.envs.host import workers
from jaxrl.envs.host.memory import SharedArrays
from jaxrl.envs.host.spaces import action_leaf, action_space, leaf_name, observation_space, observation_tree
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.host_env import HostEnv, HostEnvError, HostOptions, HostStep, group_rows
from jaxrl.envs.names import format_call, parse_call, unknown

_SLOT = "gymnasium_slot.py"


def make(name: str, /, keys: Sequence[str] = (), **kwargs: Any) -> GymnasiumFactory:
    """Checks in a separate process that `name` can be made, and returns its factory.

    Args:
      name: what `gymnasium.make` takes (`CartPole-v1`, `module:Name-v0`), or `module:Class`, a subclass of
        `gymnasium.Env`.
      keys: where observations are dicts, the parts to keep; all if empty. Parts of dicts within dicts are
        called `outer.inner`, those of tuples by their position.
      kwargs: passed on to the environment.

    Raises:
      ValueError: the name is unknown, the environment cannot be made, a space is not supported, or what it
        reports by `metadata["reports"]` (name: "last", "sum", "max" or "mean") is wrong.
    """
    # Asked for once, though every job asks: it takes a process.
    return _make(format_call(name, kwargs), tuple(keys))


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The module that making the environment imports because its name says so; None if it says none.

    The environments of shimmy, GymV21Environment and others, import what their arguments name: they count as
    modules themselves.
    """
    return name if name.startswith("GymV") else name.rpartition(":")[0] or None


@functools.cache
def _make(call: str, keys: tuple[str, ...]) -> GymnasiumFactory:
    name, kwargs = parse_call(call)
    label = f"gymnasium:{call}"
    if module := name.rpartition(":")[0]:
        modules.require_outside_runs(module)  # the worker would import it
    try:
        found = workers.describe(_SLOT, name, kwargs)
    except HostEnvError as error:
        raise ValueError(f"gymnasium:{error}") from error
    if "valid" in found:
        raise unknown("environment", f"gymnasium:{name}", [f"gymnasium:{x}" for x in found["valid"]])
    workers.require_made(label, found)
    found["tasks"] = _task_space(label, found["tasks"])
    leaves = select_leaves(label, found["obs"], keys)
    found["reports"] = declared_reports(label, found["reports"])
    try:
        return GymnasiumFactory(label, name, kwargs, leaves, found)
    except ValueError as error:
        raise ValueError(f"{label} has a space that is not supported: {error}") from error


def declared_reports(label: str, declared: Any) -> tuple[InfoMetric, ...]:
    """The reports that the environment's class declares in `metadata["reports"]`; ValueError if wrong."""
    if not isinstance(declared, dict):
        raise ValueError(f"{label} has metadata['reports'] (={declared!r}), which must be a dict")
    try:
        return tuple(InfoMetric(*item) for item in declared.items())
    except ValueError as error:
        raise ValueError(f"{label} has metadata['reports'] that is wrong: {error}") from error


def _goal_examples(leaves: Sequence[Leaf], found: dict[str, np.ndarray] | None) -> GoalExamples | None:
    """The steps that the worker played; None if a part of the observations is left out."""
    return GoalExamples(**found) if found is not None and len(leaves) == len(KEYS) else None


def _task_space(label: str, declared: Any) -> Dict | None:
    """The space of what the environment's class declares in `metadata["tasks"]`: (low, high) by name."""
    if declared is None:
        return None
    try:
        return Dict(
            tuple((str(x), Box.of(float(low), float(high), ())) for x, (low, high) in declared.items())
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{label} has metadata['tasks'] (={declared!r}), which must hold (low, high) by name"
        ) from error


def select_leaves(label: str, leaves: list[Leaf], keys: Sequence[str]) -> list[Leaf]:
    """The leaves with those names, or all; ValueError if there is no such leaf."""
    names = [leaf_name(leaf) for leaf in leaves]
    for key in keys:
        if key not in names:
            raise unknown(f"observation of {label}", key, names)
    return [leaf for leaf, name in zip(leaves, names, strict=True) if not keys or name in keys]


class GymnasiumFactory:
    """A Gymnasium environment that has been made once, to learn its spaces."""

    def __init__(
        self, label: str, name: str, kwargs: dict[str, Any], obs_leaves: list[Leaf], found: dict[str, Any]
    ):
        self.name, self.kwargs = name, kwargs
        self.obs_leaves, self.action_leaf = obs_leaves, action_leaf(found["action"])
        self.masks: str | None = found["masks"]
        self.takes_tasks: bool = found["takes_options"]
        self.spec = EnvSpec(
            name=label,
            observation_space=observation_space(obs_leaves),
            action_space=action_space(self.action_leaf),
            max_episode_steps=found["limit"],
            has_action_mask=self.masks is not None,
            reports=found["reports"],
            goal_examples=_goal_examples(obs_leaves, found["goals"]),
            task_space=found["tasks"],
        )

    def decode(self, obs: Any) -> Any:
        return obs["obs"] if self.masks else obs

    def action_mask(self, obs: Any) -> Any:
        return obs["mask"] if self.masks else None

    def require_info(self, key: str) -> None:
        """Accepts every key: the info of an environment is known only when it comes."""

    def start(self, options: HostOptions) -> HostEnv:
        return GymnasiumEnv(self, options)


class GymnasiumEnv(HostEnv):
    """B environments in worker processes; see `HostEnv`.

    The score of a step is its reward: what a wrapper of the environment clips or scales is reported so. With
    action masks, stored observations are `{"mask": bool[N, A], "obs": ...}`.
    """

    def __init__(self, factory: GymnasiumFactory, options: HostOptions):
        self.spec, self._factory = factory.spec, factory
        obs_leaves, action_leaf = factory.obs_leaves, factory.action_leaf
        self.num_envs, self.num_groups, self.timeout = len(options.seeds), options.num_groups, None
        rows = workers.rows_of_workers(self.num_envs, self.num_groups, options.num_workers)
        n = self.num_envs
        self._arrays = SharedArrays(
            {
                **{f"obs{i}": ((n, *leaf["shape"]), leaf["stored"]) for i, leaf in enumerate(obs_leaves)},
                "reward": ((n,), np.float32),
                "outcome": ((n, 3), bool),  # terminated, truncated, first
                "action": ((n, *action_leaf["shape"]), action_leaf["stored"]),
                "info": ((n, len(options.info_keys)), np.float32),
                "task": ((n, len(options.task_names)), np.float64),
                "mask": ((n, self.spec.mask_size if factory.masks else 0), bool),
                "progress": ((sum(map(len, rows)), 2), np.int64),
            }
        )
        self._obs = observation_tree(obs_leaves, [self._arrays[f"obs{i}"] for i in range(len(obs_leaves))])
        setup = workers.setup_of(
            _SLOT,
            factory.name,
            factory.kwargs,
            masks=factory.masks,
            obs_leaves=obs_leaves,
            action_leaf=action_leaf,
            seeds=options.seeds,
            first_episode_steps=options.first_episode_steps,
            info_keys=options.info_keys,
            task_names=options.task_names,
        )
        self._arrays["task"][:] = np.nan  # First episodes begin before any task is dealt.
        self._info_keys = options.info_keys
        self._workers = workers.Workers(self.spec.name, setup, self._arrays, rows, options.timeout)

    @property
    def process_ids(self) -> list[int]:
        """Of the worker processes that have not been stopped."""
        return self._workers.process_ids

    def send(self, group: int, action: np.ndarray) -> None:
        self._arrays["action"][group_rows(self, group)] = action
        self._workers.send(group)

    def deal(self, group: int, task: np.ndarray) -> None:
        self._arrays["task"][group_rows(self, group)] = task

    def recv(self, group: int) -> HostStep:
        self._workers.recv(group)
        rows = group_rows(self, group)
        obs = (
            {key: x[rows] for key, x in self._obs.items()} if isinstance(self._obs, dict) else self._obs[rows]
        )
        if self._factory.masks:
            obs = {"mask": self._arrays["mask"][rows], "obs": obs}
        reward = self._arrays["reward"][rows]
        terminated, truncated, first = self._arrays["outcome"][rows].T
        info = dict(zip(self._info_keys, self._arrays["info"][rows].T, strict=True))
        return HostStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            first=first,
            score=reward,
            game_over=terminated | truncated,
            info=info,
        )

    def decode(self, obs: Any) -> Any:
        return self._factory.decode(obs)

    def action_mask(self, obs: Any) -> Any:
        return self._factory.action_mask(obs)

    def interrupt(self) -> None:
        self._workers.interrupt()

    def close(self) -> None:
        self._workers.close()
