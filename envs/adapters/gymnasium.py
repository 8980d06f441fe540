"""Gymnasium environments as `HostEnv`, stepped in worker processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.base import Box, Dict, EnvSpec
from jaxrl.envs.goals import KEYS, GoalExamples
from jaxrl.envs.host import workers
from jaxrl.envs.host.answers import choices_of, observed
from jaxrl.envs.host.spaces import action_leaf, action_space, observation_space, select_leaves
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.host.worker_env import Forms, WorkerFactory, declared_reports
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.envs.names import format_call, parse_call, unknown

_SLOT = "gymnasium_slot"


def make(name: str, /, keys: Sequence[str] = (), **kwargs: Any) -> GymnasiumFactory:
    """Checks in a separate process that `name` can be made, and returns its factory.

    Args:
      name: what `gymnasium.make` takes (`CartPole-v1`, `module:Name-v0`), or `module:Class`, a subclass of
        `gymnasium.Env`.
      keys: if observations are dicts, the parts to keep; all if empty. Parts of dicts within dicts are
        called `outer.inner`, parts of tuples by their position.
      kwargs: passed on to the environment.

    Raises:
      ValueError: the name is unknown, the environment cannot be made, a space is not supported, or what it
        reports by `metadata["reports"]` (name: "last", "sum", "max" or "mean") is wrong.
    """
    # Cached, as every job needs it: it takes a process.
    return _make(format_call(name, kwargs), tuple(keys))


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The module that creating the environment imports, from its name; None if it has none.

    Those of shimmy, such as GymV21Environment, import what their arguments name: they count as modules.
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
    return factory_of(label, name, kwargs, keys, found)


def factory_of(
    label: str, name: str, kwargs: dict[str, Any], keys: Sequence[str], found: dict[str, Any]
) -> GymnasiumFactory:
    """The factory of the environment described by `found`; ValueError as of `make`."""
    found["tasks"] = _task_space(label, found["tasks"])
    found["reports"] = declared_reports(label, found["reports"])
    try:
        masked = bool(choices_of(found["action"]))
        leaves = observed(found["obs"], masked, keys) if found["masks"] == "obs" else found["obs"]
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error
    found["masks"] = found["masks"] if masked else None
    leaves = select_leaves(label, leaves, keys)
    try:
        return GymnasiumFactory(label, name, kwargs, leaves, found)
    except ValueError as error:
        raise ValueError(f"{label} has a space that is not supported: {error}") from error


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


class GymnasiumFactory(WorkerFactory):
    """A Gymnasium environment that has been made once, to learn its spaces."""

    slot = _SLOT

    def __init__(
        self, label: str, name: str, kwargs: dict[str, Any], obs_leaves: list[Leaf], found: dict[str, Any]
    ):
        self.target = name
        self.kwargs = kwargs
        self.obs_leaves = obs_leaves
        self.action_leaf = action_leaf(found["action"])
        self.takes_tasks: bool = found["takes_options"]
        self._masks: str | None = found["masks"]
        self.beside = ("mask",) if self._masks else ()
        # The steps that the worker played, unless a part of the observations is left out.
        examples = found["goals"] if len(obs_leaves) == len(KEYS) else None
        self.spec = EnvSpec(
            name=label,
            observation_space=observation_space(obs_leaves),
            action_space=action_space(self.action_leaf),
            max_episode_steps=found["limit"],
            has_action_mask=self._masks is not None,
            reports=found["reports"],
            goal_examples=None if examples is None else GoalExamples(**examples),
            task_space=found["tasks"],
            open_info=True,
        )

    def instructions(self, options: HostOptions) -> dict[str, Any]:
        return {
            "masks": self._masks,
            "obs_leaves": self.obs_leaves,
            "action_leaf": self.action_leaf,
            "task_names": options.task_names,
        }

    def own_arrays(self, options: HostOptions) -> Forms:
        return {"task": ((len(options.seeds), len(options.task_names)), np.float64)}
