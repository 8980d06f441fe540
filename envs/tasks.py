"""Tasks: variants of an environment, chosen for each episode when it starts.

An environment whose `spec.task_space` is set starts an episode by `reset(key, task)`; every other one by
`reset(key)`. Code that serves both hands on `reset(key, *arguments)`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.base import JaxEnv


@dataclasses.dataclass(frozen=True)
class TaskGroup:
    """Names for parts of the tasks, such as the categories of levels."""

    field: str  # of the `task_space`
    members: Mapping[str, np.ndarray]  # its values, [n], by name


@dataclasses.dataclass(frozen=True)
class TaskScale:
    """A number that stands for several fields of the tasks, such as a difficulty."""

    low: float
    high: float
    # Of the `task_space`, for a number within these bounds: by name a number, or values [n] to sample from.
    fields: Callable[[float], Mapping[str, float | np.ndarray]]


def task_groups(env: JaxEnv) -> Mapping[str, TaskGroup]:
    """The groups that `env` names in `task_groups`, by name; most environments have none."""
    return getattr(env, "task_groups", {})


def task_scales(env: JaxEnv) -> Mapping[str, TaskScale]:
    """The scales that `env` names in `task_scales`, by name; most environments have none."""
    return getattr(env, "task_scales", {})


def default_task(env: JaxEnv) -> Any:
    """The task of `env` if none is chosen: evaluation, videos, training without a curriculum."""
    has_tasks: Any = env
    return has_tasks.default_task


def default_arguments(env: JaxEnv) -> tuple[Any, ...]:
    """The arguments of `env.reset` after the key: the default task, or none for an environment without."""
    return () if env.spec.task_space is None else (default_task(env),)


def takes_task(env: JaxEnv) -> bool:
    """True if `env.reset` can be called with a task."""
    try:
        inspect.signature(env.reset).bind(None, None)
    except TypeError:
        return False
    return True


def method_of_tasks(env: JaxEnv, name: str) -> Callable[..., Any] | None:
    """A function of its tasks that `env` may have, or None, as without tasks.

    `draw_task(key) -> task` makes a random one, `mutate(key, task) -> task` changes one a little, and
    `is_solvable(task) -> bool[]` tests whether it can be solved at all. All are pure.
    """
    # If `reset` takes no task, the wrapper `trials` may choose them.
    return None if env.spec.task_space is None else getattr(env, name, None)


def level_pool(env: JaxEnv) -> Any:
    """Every task there is, leaves [n, ...], if `env` names them in `level_pool`; else None."""
    return method_of_tasks(env, "level_pool")


def named_tasks(env: JaxEnv) -> Mapping[str, Any]:
    """The tasks that `env` gives names in `named_tasks`; most environments have none."""
    return getattr(env, "named_tasks", {})
