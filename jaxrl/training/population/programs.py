"""The programs of a population: every member's iterations, and every member's episodes, as one."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from envs import registry
from envs.vector import VectorEnv
from jaxrl.config import Config
from jaxrl.evaluation.during_training import EvaluationPlan
from jaxrl.evaluation.evaluator import player
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.sharding import Topology
from jaxrl.rollout.episodes import Episodes
from jaxrl.training.device_runtime import DeviceRuntime
from jaxrl.training.iteration import Iteration
from jaxrl.training.population.placement import Placement
from jaxrl.training.population.rendezvous import Service
from jaxrl.types import Array, Axis, PolicyState, TrainState


class TrainingProgram:
    """Advances members by some iterations each; compiled once for all.

    Attributes:
      compiled: the program, once `compile` has run.
    """

    def __init__(self, iteration: Iteration, placement: Placement) -> None:
        self.compiled: Any = None
        self._iteration, self._placement = iteration, placement
        self._lock = threading.Lock()

    def trace(self) -> Any:
        """The program (states, intervals, counts) -> (states, intervals, failed), all of [rows, ...]."""
        iteration = self._iteration
        algorithm, config = iteration.learning.algorithm, iteration.learning.config
        key = jax.eval_shape(lambda: jax.random.key(0))
        state = jax.eval_shape(iteration.init, key, algorithm.hyperparameters(config))
        interval = jax.eval_shape(iteration.learning.empty_interval)
        count = jax.ShapeDtypeStruct((), jnp.int32)
        return self._placement.trace(iteration.repeat, state, interval, count, donate=True)

    def compile(self) -> None:
        """Compiles, or waits for the member that does."""
        with self._lock:
            if self.compiled is None:
                self.compiled = self.trace().lower().compile()

    def advance(
        self, asked: Mapping[int, tuple[TrainState, Interval, Array]]
    ) -> dict[int, tuple[TrainState, Interval, Array]]:
        """Starts the iterations of the members that ask; the others make none."""
        idle = jnp.zeros((), jnp.int32)
        some_state, some_interval, _ = next(iter(asked.values()))
        everyone = dict.fromkeys(range(self._placement.rows), (some_state, some_interval, idle)) | dict(asked)
        rows = self._placement.scatter(self.compiled(*self._placement.gather(everyone)))
        return {member: rows[member] for member in asked}


class EpisodesProgram:
    """Plays the episodes of an evaluation for each member; compiled once for all."""

    def __init__(self, iteration: Iteration, task: EvaluationTask, placement: Placement) -> None:
        self._policy, self._reports = iteration.collector.policy, task.reports
        self._env = VectorEnv(registry.make(task.env, task.wrappers))
        self._placement = placement
        self._lock = threading.Lock()
        self._compiled: dict[tuple[int, bool], Any] = {}
        self._services: dict[tuple[int, bool], Service] = {}

    @property
    def compiled(self) -> tuple[Any, ...]:
        """What has been compiled so far."""
        return tuple(self._compiled.values())

    def compile(self, state: PolicyState, episodes: int, sample: bool) -> None:
        """Compiles for so many episodes, or waits for the member that does; `state` may be abstract."""
        with self._lock:
            if (episodes, sample) in self._compiled:
                return
            play = player(self._policy, self._env, Axis(), episodes, sample, self._reports)
            program = self._placement.trace(play, state, jax.eval_shape(lambda: jax.random.key(0)))
            compiled = self._compiled[episodes, sample] = program.lower().compile()
            self._services[episodes, sample] = functools.partial(self._play, compiled)

    def service(self, episodes: int, sample: bool) -> Service:
        """What starts to play so many episodes for the members that ask with (policy state, key)."""
        return self._services[episodes, sample]

    def _play(self, compiled: Any, asked: Mapping[int, Any]) -> dict[int, Episodes]:
        rows = self._placement.scatter(compiled(*self._placement.gather(asked)))
        return {member: rows[member] for member in asked}


class Programs:
    """Everything that is compiled for members of one shape.

    Attributes:
      training: makes their iterations.
      plan: what evaluations play.
      evaluation: plays their episodes, by task.
    """

    def __init__(self, config: Config, members: int, topology: Topology) -> None:
        """Builds everything; nothing is compiled.

        Args:
          config: of any member; they differ in seeds and numeric hyperparameters.
          members: how many.
          topology: the devices that they are shared out among.

        Raises:
          ConfigError: the configuration cannot be trained here.
        """
        self._placement = Placement(members, topology)
        if topology.axis.platform != "cpu" and config.network.recurrence == "auto":
            # The kernel is compared with the scan before a run takes it, but not under vmap.
            config = dataclasses.replace(
                config, network=dataclasses.replace(config.network, recurrence="scan")
            )
        # What a member does on its own: its first state, and the search for what was not finite.
        self._runtimes = [DeviceRuntime(config, Topology.on([device])) for device in topology.local_devices]
        # No mesh inside: members know nothing of each other.
        axis = dataclasses.replace(topology.axis, name=None, size=1)
        env = registry.make(config.env.name, config.env.wrappers)
        iteration = Iteration.build(config, env, self._runtimes[0].policy, axis)
        self.training = TrainingProgram(iteration, self._placement)
        self.plan = EvaluationPlan.of(config, env.spec)
        self.evaluation = {
            task: EpisodesProgram(iteration, task, self._placement) for task in self.plan.every_task
        }

    def runtime_of(self, member: int) -> DeviceRuntime:
        """The runtime of the member's device."""
        return self._runtimes[self._placement.device_of(member)]
