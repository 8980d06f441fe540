"""The programs of a population: every member's iterations, and every member's episodes, as one."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import Config
from jaxrl.evaluation.during_training import EvaluationPlan
from jaxrl.evaluation.evaluator import Modes, Played, dealt, player
from jaxrl.evaluation.evaluators import EvaluationTask, agent_of
from jaxrl.parallel.sharding import Topology
from jaxrl.population.member_batch import MemberBatch
from jaxrl.population.placement import Placement
from jaxrl.population.shared_calls import SharedFunction
from jaxrl.population.turns import Turns
from jaxrl.programs.device_runtime import DeviceRuntime, environment
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Array, Axis, PyTree, TrainState


class TrainingProgram:
    """Advances members by some iterations each; compiled once for all.

    Attributes:
      compiled: the program, once `compile` has run.
    """

    def __init__(self, iteration: Iteration, placement: Placement) -> None:
        self.compiled: Any = None
        self._iteration = iteration
        self._placement = placement
        self._lock = threading.Lock()

    def trace(self) -> Any:
        """The program (states, intervals, counts) -> (states, intervals, failed), as JAX traced it."""
        return self._members.trace()

    def compile(self) -> None:
        """Compiles, or waits for the member that does."""
        with self._lock:
            if self.compiled is None:
                self.compiled = self.trace().lower().compile()

    def advance(
        self, arguments: Mapping[int, tuple[TrainState, PyTree, Array]]
    ) -> dict[int, tuple[TrainState, PyTree, Array]]:
        """Starts the iterations of some members, given (state, interval, count); the others make none."""
        return self._members.advance(self.compiled, arguments)

    @functools.cached_property
    def _members(self) -> Turns | MemberBatch:
        """Members in batches; one by one on a CPU, which gains nothing from batches of small products."""
        iteration = self._iteration
        algorithm = iteration.learning.algorithm
        config = iteration.learning.config
        key = jax.eval_shape(lambda: jax.random.key(0))
        state = jax.eval_shape(iteration.init, key, algorithm.hyperparameters(config))
        interval = jax.eval_shape(iteration.learning.empty_interval)
        arguments = state, interval, jax.ShapeDtypeStruct((), jnp.int32)
        if self._placement.topology.axis.platform == "cpu":
            return Turns(self._placement, iteration.repeat, *arguments)
        return MemberBatch(self._placement, iteration.repeat_together, *arguments)


class EpisodesProgram:
    """Plays the episodes of an evaluation for each member; compiled once for all."""

    def __init__(self, iteration: Iteration, task: EvaluationTask, placement: Placement) -> None:
        learning = iteration.learning
        self._reports = task.reports
        self._env = task.environment()
        self._agent = agent_of(learning.config, learning.algorithm.agent, self._env.spec)
        self._placement = placement
        self._lock = threading.Lock()
        self._compiled: dict[tuple[int, Modes, bool], Any] = {}
        self._play_functions: dict[tuple[int, Modes, bool], SharedFunction] = {}

    @property
    def compiled(self) -> tuple[Any, ...]:
        """The programs compiled so far."""
        return tuple(self._compiled.values())

    def compile(self, state: Acting, episodes: int, modes: Modes, tasks: PyTree = None) -> None:
        """Compiles for a number of episodes, or waits for the member that does; `state` may be abstract."""
        kind = (episodes, modes, tasks is not None)
        with self._lock:
            if kind in self._compiled:
                return
            play = player(self._agent, self._env, Axis(), episodes, modes, self._reports)
            given = jax.eval_shape(lambda: (jax.random.key(0), dealt(tasks, episodes)))
            compiled = self._compiled[kind] = self._placement.trace(play, state, *given).lower().compile()
            self._play_functions[kind] = functools.partial(self._play, compiled)

    def play_function(self, episodes: int, modes: Modes, has_tasks: bool = False) -> SharedFunction:
        """The function of (policy state, key, tasks) by member that plays so many episodes for each."""
        return self._play_functions[episodes, modes, has_tasks]

    def _play(self, compiled: Any, arguments: Mapping[int, Any]) -> dict[int, Played]:
        rows = self._placement.scatter(compiled(*self._placement.gather(arguments)))
        return {member: rows[member] for member in arguments}


class Programs:
    """Everything that is compiled for members of one shape.

    Attributes:
      training: the program of their iterations.
      plan: the plan of their evaluations.
      evaluation: the programs of their episodes, by task.
    """

    def __init__(self, config: Config, members: int, topology: Topology) -> None:
        """Builds everything; nothing is compiled.

        Args:
          config: of any member; they differ in seeds and numeric hyperparameters.
          members: the number of members.
          topology: the devices among which they are divided.

        Raises:
          ConfigError: the configuration cannot be trained here.
        """
        self._placement = Placement(members, topology)
        if topology.axis.platform != "cpu":
            # Kernels are compared with the plain forms before a run takes them, but not under vmap.
            network = config.network
            recurrence = "scan" if network.recurrence == "auto" else network.recurrence
            dense = "layers" if network.dense == "auto" else network.dense
            network = dataclasses.replace(network, recurrence=recurrence, dense=dense)
            config = dataclasses.replace(config, network=network)
        # For the work of a single member: its first state, and the search for values that are not finite.
        self._runtimes = [DeviceRuntime(config, Topology.on([device])) for device in topology.local_devices]
        # No mesh inside: members know nothing of each other.
        axis = dataclasses.replace(topology.axis, name=None, size=1)
        env, spec = environment(config)
        iteration = Iteration.build(config, env, self._runtimes[0].agent, axis)
        self.training = TrainingProgram(iteration, self._placement)
        self.plan = EvaluationPlan.of(config, spec)
        self.evaluation = {
            task: EpisodesProgram(iteration, task, self._placement) for task in self.plan.every_task
        }

    def runtime_of(self, member: int) -> DeviceRuntime:
        """The runtime of the member's device."""
        return self._runtimes[self._placement.device_of(member)]
