"""Samplers of tasks, which choose the task of each environment when an episode of it starts."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct

from jaxrl.algorithms import Algorithm
from jaxrl.config import ConfigError
from jaxrl.metrics.reduction import Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree, Trajectory

# Keeps the keys of tasks apart from the keys of resets, steps and actions.
TASK_KEY = 0x5441534B


@flax.struct.dataclass
class LevelResults:
    """Episodes in E levels, Q in each.

    Attributes:
      success: float32[E, Q], 1 or 0.
      length: int32[E, Q], steps; 0 where no episode was requested.
    """

    success: Array
    length: Array


# Plays so many episodes, Q, in levels [E, ...] with keys [E], in the first `quota` int32[E] of them.
PlayLevels = Callable[[PyTree, Array, Array, int], LevelResults]


class TaskSampler(abc.ABC):
    """Chooses tasks at resets, on the device, and learns from the episodes; pure functions.

    Its state is replicated and part of the training state. It does not change during a rollout. A class that
    `curriculum.name` names is called with the configuration and the environment.

    Attributes:
      signals: the names of per-step signals that it asks the algorithm for (`Algorithm.signals`).
    """

    signals: tuple[str, ...] = ()

    @abc.abstractmethod
    def init(self, key: Array) -> PyTree:
        """The state before the first reset."""

    @abc.abstractmethod
    def choose(self, state: PyTree, keys_B: Array) -> PyTree:
        """Tasks [B, ...], each from its own key alone: of the environment's `task_space`, unless
        `environment_task` says otherwise.
        """

    def environment_task(self, task: PyTree) -> PyTree:
        """The part of a task that the environment gets; may be overridden, to keep more of an episode."""
        return task

    def learns_from(self, task_TB: PyTree) -> Array | None:
        """bool[T, B], False in rows of episodes that must not be learnt from, by their tasks; None: all are.

        May be overridden, and then masks only where `CurriculumConfig.masks_rows`.
        """
        return None

    def weigh(self, state: PyTree, trajectory: Trajectory) -> Array | None:
        """float32[T, B], how much the loss of each step counts, relative to others; None: all alike.

        May be overridden, for algorithms that offer `curriculum.weights`.
        """
        return None

    def refresh(self, state: PyTree, play: PlayLevels, key: Array, axis: Axis) -> PyTree:
        """The state after the sampler's own rollouts, every `Config.refresh_iterations`; may be overridden.

        It is called before an iteration, and after a resume perhaps again before the same one.

        Args:
          play: makes the rollouts.
          key: the same on all devices.
        """
        return state

    @abc.abstractmethod
    def update(self, state: PyTree, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis) -> Any:
        """The state after a rollout and what was learnt from it; the same on all devices.

        Args:
          episodes: of this device.
          signals: float32[T, B] of this device, by the names in `signals`.
        """

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """Names and reductions of what `report` tells; may be overridden."""
        return {}

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        """(metric, label) of the metrics that displays show; may be overridden."""
        return ()

    def report(self, state: PyTree, episodes: EpisodeRows, axis: Axis) -> Metrics:
        """The `metrics` of a rollout, with the state after it; may be overridden."""
        return {}

    def event(self, row: Mapping[str, float], steps: int) -> str:
        """A line about the `steps` before a row of metrics, for people, or ""; may be overridden."""
        return ""


def require_signals(tasks: TaskSampler, algorithm: Algorithm) -> None:
    """Raises ConfigError if a task sampler asks for a signal that the algorithm does not offer."""
    for name in tasks.signals:
        if name not in algorithm.signals:
            offered = ", ".join(algorithm.signals) or "none"
            raise ConfigError(
                f"`algorithm` (={algorithm.name!r}) does not offer the signal {name} that "
                f"{type(tasks).__name__} needs; it offers {offered}"
            )
