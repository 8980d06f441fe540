"""The interface of a runtime, which runs iterations on the devices alone or with environments on the host."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from jaxrl.algorithms import Agent
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics.reduction import Interval
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.types import Array, EpisodeTotals, PyTree, TrainState, Trajectory


class Runtime(abc.ABC):
    """Runs iterations of one configuration on one topology.

    Attributes:
      learning: the program that learns, over all devices.
      one_program: True if whole iterations are one program, so that several can be dispatched at once.
        Otherwise each needs the host: they run one at a time, each once the last is known to be finite.
      compiled: the training program; None until `compile` has run.
    """

    spec: EnvSpec
    agent: Agent
    learning: ShardedLearning
    one_program: bool
    compiled: Any = None

    @abc.abstractmethod
    def trace(self) -> Any:
        """The program that `compile` compiles, as JAX traced it."""

    @abc.abstractmethod
    def compile(self) -> None:
        """Compiles what training takes."""

    def prepare(self, state: TrainState) -> TrainState:
        """Makes everything ready for a first iteration from `state`; returns the state to begin with.

        To be overridden if there is something to make ready.
        """
        return state

    @abc.abstractmethod
    def advance(
        self, state: TrainState, interval: Interval, count: int
    ) -> tuple[TrainState, Interval, Array]:
        """Runs `count` iterations (one, unless `one_program`), and returns before they are finished.

        Args:
          state: donated.
          interval: the metrics so far.

        Returns:
          (state, interval, failed): `failed` is bool[], True if an iteration was not finite; the state is
          then the one before it.

        Raises:
          Cancelled: a signal asked not to wait for the environments; nothing was donated.
        """

    @abc.abstractmethod
    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory | None, EpisodeTotals | None]:
        """Steps the environments by one rollout, as `Collector.collect`; totals are of [devices].

        Trajectory and totals are None if nothing is collected.
        """

    def refresh(self, state: TrainState) -> TrainState:
        """Lets the task sampler choose levels by its rollouts (`Config.refreshes`); `state` is donated.

        To be overridden like `rollouts`: levels of environments on the host are not chosen by rollouts.
        """
        return state

    def rollouts(self, count: int) -> Callable[[TrainState], PyTree] | None:
        """A program that makes `count` rollouts alone; None if they need the host or there are none."""
        return None

    @abc.abstractmethod
    def failed_rollout(self, state: TrainState) -> Trajectory | None:
        """The rollout of the iteration after `state`, which was found not to be finite."""

    @abc.abstractmethod
    def single_device_iteration(self, state: TrainState) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
        """The iteration after `state`, which was found not to be finite, as it is on one device alone.

        Returns (function, arguments): pure, on whole arrays of all environments.
        """

    def time_shares(self) -> dict[str, float]:
        """Metrics of where the time since the last call went; to be overridden like `close`."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Ends what runs beside the program; a later rollout starts it again.

        To be overridden where anything does.
        """
