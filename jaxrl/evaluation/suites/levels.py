"""The levels of a suite, checked for a policy, their player, and the results of their episodes."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jaxrl.config import ConfigError, EnvConfig, environment_spec, task_environment
from jaxrl.config.errors import errors_as
from jaxrl.envs import registry
from jaxrl.envs.base import Dict, EnvSpec, Space
from jaxrl.envs.tasks import default_task, task_groups
from jaxrl.evaluation.evaluator import EvaluationTask, Evaluator, Modes
from jaxrl.evaluation.suites.definition import COST, Level, Suite
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS, Episodes
from jaxrl.experience.statistics import SUCCESS, EpisodeReports, declares
from jaxrl.types import Acting, Array


@dataclass(frozen=True)
class Outcomes:
    """One row per episode; float64 or bool of [N].

    Attributes:
      score: the return, raw.
      length: steps.
      normalized: length over what counts as 1 in this level.
      finished: False if it was cut off by the safety limit.
      success: bool, or None without a rule and without an environment that reports success, or if no
        episode reported the rule's entry and the level does not declare it.
      cost: summed over the episode, or None likewise.
    """

    score: np.ndarray
    length: np.ndarray
    normalized: np.ndarray
    finished: np.ndarray
    success: np.ndarray | None
    cost: np.ndarray | None


@dataclass(frozen=True)
class PlayableLevel:
    """A level that the policy can play, as the task of an evaluator.

    Attributes:
      steps: the number that counts as 1 in normalised steps.
      tasks: arrays [N, ...], the tasks of episodes, cyclically; None: the default task.
    """

    level: Level
    task: EvaluationTask
    steps: float
    tasks: Any = None

    def task_of(self, number: int) -> Any:
        """One of the tasks, whatever the number; None without."""
        return self.tasks and {key: x[number % len(x)] for key, x in self.tasks.items()}

    def outcomes(self, played: Episodes) -> Outcomes:
        """The outcome of episodes that were copied to the host."""
        told = played.values_by_label(self.task.reports)
        asked = np.asarray(played.played)
        length = np.asarray(played.length, np.float64)[asked]
        success = _reports_of(told.get(SUCCESS))
        return Outcomes(
            score=np.asarray(played.episode_return, np.float64)[asked],
            length=length,
            normalized=length / self.steps,
            finished=np.asarray(played.finished)[asked],
            success=None if success is None else success > 0,
            cost=_reports_of(told.get(COST)),
        )


@dataclass(frozen=True)
class SuiteLevels:
    """A suite whose levels the policy can play, by category."""

    suite: Suite
    categories: Mapping[str, tuple[PlayableLevel, ...]]

    @classmethod
    def of(cls, suite: Suite, spec: EnvSpec, env: EnvConfig) -> SuiteLevels:
        """Checks every level, before anything is played.

        Args:
          spec: of the environment that the policy was made for.
          env: of its run; levels take its wrappers if they name none, and may be one of its tasks by name.

        Raises:
          ConfigError: the policy cannot play a level, or this does not report what its rules ask for.
        """
        with errors_as(ConfigError, suite.given, ConfigError):
            categories = {
                name: tuple(
                    _playable(level, spec, env, f"categories.{name}[{i}].env")
                    for i, level in enumerate(category)
                )
                for name, category in suite.categories.items()
            }
            return cls(suite, categories)


def _reports_of(values: np.ndarray | None) -> np.ndarray | None:
    """The values, 0 in episodes that reported none; None if none of the level's episodes reported any."""
    if values is None or np.isnan(values).all():
        return None
    return np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _playable(level: Level, own: EnvSpec, env: EnvConfig, where: str) -> PlayableLevel:
    level = replace(level, env=task_environment(level.env, env, own.task_names))
    wrappers = env.wrappers if level.wrappers is None else level.wrappers
    name = f"`{where}` (={level.env!r})"
    spec = environment_spec(where, level.env, level.env, wrappers)
    for what, field in (("observations", "observation_space"), ("actions", "action_space")):
        ours, theirs = (_form(getattr(x, field)) for x in (own, spec))
        if ours != theirs:
            raise ConfigError(f"{name} has {what} of {theirs}, the policy has {ours}")
    if spec.has_action_mask != own.has_action_mask:
        raise ConfigError(f"{name} and the environment of the run must both have action masks, or neither")
    for key in level.reports.info_keys:
        with errors_as(ConfigError, f"{name} cannot report {key!r}", ValueError):
            registry.check_info_key(level.env, wrappers, key)
    steps = level.steps or spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS
    reports = level.reports
    if level.success is None:
        reports = reports.with_success_of(EpisodeReports.of(spec))
    else:
        reports = replace(reports, is_declared=declares(spec, level.success))
    tasks = _tasks(level, wrappers, where.removesuffix("env") + "tasks") if level.tasks else None
    return PlayableLevel(level, EvaluationTask(level.env, wrappers, reports), float(steps), tasks)


def _tasks(level: Level, wrappers: tuple[str, ...], where: str) -> dict[str, np.ndarray]:
    """The tasks of the group that a level names."""
    given = f"`{where}` (={level.tasks!r})"
    if registry.is_host(level.env):
        raise ConfigError(f"{given}: environments on the host name no groups of tasks")
    env = registry.make(level.env, wrappers)
    known = task_groups(env)
    name, _, member = level.tasks.partition("=")
    if name not in known or member not in known[name].members:
        choices = [f"{group}={each}" for group, found in known.items() for each in found.members]
        if not choices:
            raise ConfigError(f"{given}: {level.env} names no groups of tasks")
        raise ConfigError(f"{given} must be one of {', '.join(choices)}")
    values = known[name].members[member]
    others = {
        key: np.repeat(np.asarray(x)[None], len(values), axis=0) for key, x in default_task(env).items()
    }
    return {**others, known[name].field: values}


def _form(space: Space) -> str:
    """The part of a space that a policy depends on, without the bounds."""
    if isinstance(space, Dict):
        return "{" + ", ".join(f"{key}: {_form(part)}" for key, part in space.spaces) + "}"
    if hasattr(space, "low"):
        return f"{np.dtype(space.dtype)}{list(space.shape)}"
    return str(space).replace(f", dtype={space.dtype!r}", "")


class SuitePlayer:
    """Plays the episodes that a suite asks for: the same ones, decided by its seed, at every call."""

    def __init__(self, levels: SuiteLevels, evaluator_of: Callable[[EvaluationTask], Evaluator]) -> None:
        """`evaluator_of` returns the evaluator of a task."""
        self._seed = levels.suite.seed
        self._categories = {
            name: [(level, evaluator_of(level.task)) for level in category]
            for name, category in levels.categories.items()
        }

    def compile(self, state: Acting, modes: Modes) -> list[Callable[[], None]]:
        """Jobs that compile ahead what `play` takes, for threads; `state` may be abstract.

        Levels of one environment that differ in their tasks alone share a program.
        """
        jobs: dict[tuple[int, int, bool], Callable[[], None]] = {}
        for category in self._categories.values():
            for level, evaluator in category:
                episodes = level.level.episodes
                job = functools.partial(evaluator.compile, state, episodes, modes, level.tasks)
                jobs.setdefault((id(evaluator), episodes, level.tasks is None), job)
        return [*jobs.values()]

    def play(self, state: Acting, modes: Modes) -> dict[str, dict[str, list[Outcomes]]]:
        """Plays exactly the episodes of every level in each mode; by mode, then by category.

        Raises:
          HostEnvError: an environment failed.
          Cancelled: a signal ended the wait.
        """
        root = jax.random.key(self._seed)
        found: dict[str, dict[str, list[Outcomes]]] = {mode: {} for mode in modes}
        for name, category in self._categories.items():
            played = [
                evaluator.play(state, level_key(root, name, index), level.level.episodes, modes, level.tasks)
                for index, (level, evaluator) in enumerate(category)
            ]
            for mode in modes:
                levels = zip(category, played, strict=True)
                found[mode][name] = [level.outcomes(each[mode]) for (level, _), each in levels]
        return found


def level_key(root: Array, category: str, index: int) -> Array:
    """The key of a level, by its place: an environment that is there twice plays other episodes."""
    return jax.random.fold_in(jax.random.fold_in(root, zlib.crc32(category.encode())), index)
