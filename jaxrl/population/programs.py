"""The programs of a population: members in one batch on accelerators, taking turns on a CPU's devices."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import Config
from jaxrl.evaluation.during_training import EvaluationPlan
from jaxrl.evaluation.evaluator import EvaluationTask, Modes, Played, agent_of, dealt, player
from jaxrl.parallel.sharding import SHARDED, Topology
from jaxrl.population.placement import Placement
from jaxrl.population.shared_calls import SharedFunction
from jaxrl.programs.device_runtime import DeviceRuntime, environment
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Array, Axis, PyTree, TrainState

# Between a number and an array of one, which can be joined with other devices'.
_RAISE = jax.jit(lambda numbers: [x[None] for x in numbers])
_LOWER = jax.jit(lambda numbers: [x[0] for x in numbers])


class TrainingProgram:
    """Advances members by some iterations each; compiled once for all."""

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
    """Everything that is compiled for members of one shape."""

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


class Turns:
    """A function of one member as a program with a member on each device, called until all had their turn.

    The arrays of a member are the program's: the first argument is donated, and nothing that is large, such
    as a memory, is copied on the way there or back. Arrays of all members would have to be.
    """

    def __init__(self, placement: Placement, fn: Callable[..., PyTree], *arguments: PyTree) -> None:
        """Compiles nothing.

        Args:
          placement: of the members.
          fn: a function of one member's state, its other values and a number of iterations, which returns
            the state first. With 0 iterations it changes nothing.
          arguments: the shapes of these.
        """
        self._placement = placement
        self._fn = fn
        self._arguments = arguments
        self._results = jax.eval_shape(fn, *arguments)
        self._spares: dict[int, PyTree] = {}

    def trace(self) -> Any:
        """The program, as JAX traced it."""
        topology = self._placement.topology

        def on_device(*joined: PyTree) -> PyTree:
            own = jax.tree.map(lambda x, like: x.reshape(like.shape), joined, self._arguments)
            return jax.tree.map(jnp.atleast_1d, self._fn(*own))

        def on_all(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            first, *rest = x.shape or (1,)
            return jax.ShapeDtypeStruct((topology.axis.size * first, *rest), x.dtype)

        inputs = (SHARDED,) * len(self._arguments)
        program = topology.shard(on_device, inputs, SHARDED, donate=True)
        return program.trace(*topology.abstract(jax.tree.map(on_all, self._arguments), inputs))

    def advance(self, compiled: Any, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Starts the program for some members; their results by member."""
        found: dict[int, Any] = {}
        for members in self._placement.turns:
            present = [member for member in members if member in arguments]
            if not present:
                continue
            given = [
                arguments[member] if member in arguments else self._spare(at, arguments[present[0]])
                for at, member in enumerate(members)
            ]
            for at, (member, result) in enumerate(zip(members, self._call(compiled, given), strict=True)):
                if member in arguments:
                    found[member] = result
                else:
                    self._spares[at] = result[0]
        return found

    def _call(self, compiled: Any, given: Sequence[Any]) -> list[Any]:
        """The results of one member on each device, in the order of the devices."""
        topology = self._placement.topology
        here = [jax.device_put(x, device) for x, device in zip(given, topology.local_devices, strict=True)]
        results = compiled(*topology.join([_change_leaves(_RAISE, x, self._arguments) for x in here]))
        return [_change_leaves(_LOWER, x, self._results) for x in topology.split(results)]

    def _spare(self, at: int, like: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
        """Arguments that make no iteration, for a device whose member has nothing to do; copied once."""
        device = self._placement.topology.local_devices[at]
        state, others, iterations = like
        if at not in self._spares:
            self._spares[at] = jax.device_put(state, device, may_alias=False)
        return self._spares[at], others, jnp.zeros_like(iterations)


def _change_leaves(change: Callable[[list[Array]], list[Array]], tree: PyTree, like: PyTree) -> PyTree:
    """The tree with `change` for all leaves that are numbers in `like`; the others as they are."""
    leaves, structure = jax.tree.flatten(tree)
    numbers = [i for i, x in enumerate(jax.tree.leaves(like)) if x.ndim == 0]
    for i, number in zip(numbers, change([leaves[i] for i in numbers]), strict=True):
        leaves[i] = number
    return jax.tree.unflatten(structure, leaves)


class MemberBatch:
    """A function of all members on a device as one program.

    Each call puts the members' arrays together and takes them apart again.
    """

    def __init__(self, placement: Placement, fn: Callable[..., PyTree], *arguments: PyTree) -> None:
        """Compiles nothing.

        Args:
          placement: of the members.
          fn: a function of [M, ...]: states, other values and numbers of iterations. A member with 0
            iterations does not change.
          arguments: the shapes of one member's.
        """
        self._placement = placement
        self._fn = fn
        self._arguments = arguments

    def trace(self) -> Any:
        """The program, as JAX traced it."""
        return self._placement.trace_members(self._fn, *self._arguments)

    def advance(self, compiled: Any, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Starts the program for some members; their results by member."""
        state, others, iterations = next(iter(arguments.values()))
        idle = dict.fromkeys(range(self._placement.rows), (state, others, jnp.zeros_like(iterations)))
        rows = self._placement.scatter(compiled(*self._placement.gather(idle | dict(arguments))))
        return {member: rows[member] for member in arguments}
