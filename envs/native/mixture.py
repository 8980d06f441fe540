"""`jaxrl:Mixture`: environments of other suites as tasks of one policy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.names import format_call

NAME = "jaxrl:Mixture"
CLASSIC = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1", "gymnax:MountainCar-v0")


def mixture(tasks: Sequence[str] = CLASSIC, shares: Sequence[int] = (), only: str = "") -> JaxEnv:
    """Several environments as one (docs/tasks.md).

    Args:
      tasks: their names.
      shares: of sum(shares) environments so many have each task; empty: one each.
      only: the short name of the one task that is played, with the spaces of all.
    """
    # The registry imports this suite.
    registry = importlib.import_module("jaxrl.envs.registry")
    if isinstance(tasks, str):
        raise ValueError(f"{NAME}: tasks (={tasks!r}) must be a tuple of names")
    return TaskMixture(NAME, [registry.make(name) for name in tasks], shares, only)


def mixture_name(tasks: Sequence[str], shares: Sequence[int] = ()) -> str:
    return format_call(NAME, {"tasks": tuple(tasks)} | ({"shares": tuple(shares)} if shares else {}))


def module_of(arguments: Mapping[str, Any]) -> str | None:
    """The first module that one of the tasks imports, from its name."""
    registry = importlib.import_module("jaxrl.envs.registry")
    tasks = arguments.get("tasks", ())
    found = [registry.module_of(task) for task in tasks if isinstance(task, str)]
    return next((module for module in found if module is not None), None)
