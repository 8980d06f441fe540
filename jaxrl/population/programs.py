"""The programs of a population: members in one batch on accelerators, taking turns on a CPU's devices."""

from __future__ import annotations

import abc
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
from jaxrl.population.shared_calls import SharedFunction
from jaxrl.programs.device_runtime import DeviceRuntime, environment
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Array, Axis, PyTree

# Between a number and an array of one, which can be joined with other devices'.
_RAISE = jax.jit(lambda numbers: [x[None] for x in numbers])
_LOWER = jax.jit(lambda numbers: [x[0] for x in numbers])
_STACK = jax.jit(lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees))


@functools.partial(jax.jit, static_argnums=1)
def _unstack(tree: PyTree, count: int) -> list[PyTree]:
    return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(count)]


def each_member(fn: Callable[..., PyTree], topology: Topology) -> Callable[..., PyTree]:
    """`fn` of one member as a function of all members on a device.

    On accelerators they are batched. A CPU computes one after the other: it gains nothing from batches of
    small products, and under `vmap` a branch computes both sides.
    """
    if topology.axis.platform == "cpu":
        return lambda *arguments: jax.lax.map(lambda each: fn(*each), arguments)
    return jax.vmap(fn)


class Placement:
    """Members on devices, with equally many rows on each; spare rows hold a copy of another member.

    Attributes:
      rows: of arrays that hold all members, over all devices.
    """

    def __init__(self, members: int, topology: Topology) -> None:
        self.topology = topology
        self._per_device = -(-members // topology.axis.size)
        self.rows = self._per_device * topology.axis.size

    def device_of(self, member: int) -> int:
        """The position of a member's device in the topology."""
        return member // self._per_device

    @property
    def turns(self) -> list[list[int]]:
        """The rows that are first on their devices, in the order of the devices, then the second, ..."""
        return [list(range(turn, self.rows, self._per_device)) for turn in range(self._per_device)]

    def trace(self, fn: Callable[..., PyTree], *arguments: PyTree, donate: bool) -> Any:
        """The traced program that applies `fn` of all members on a device, [M, ...], to the rows of each.

        Args:
          arguments: the shapes of one member's arguments; `donate` donates the buffers of the first.
        """
        inputs = (SHARDED,) * len(arguments)
        program = self.topology.shard(fn, inputs, SHARDED, donate)
        of_rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.rows, *x.shape), x.dtype), arguments)
        return program.trace(*self.topology.abstract(of_rows, inputs))

    def gather(self, of_members: Mapping[int, PyTree]) -> PyTree:
        """Global arrays [rows, ...] of some members' trees, each on its member's device."""
        substitute = next(iter(of_members.values()))
        parts = []
        for position, device in enumerate(self.topology.local_devices):
            first = position * self._per_device
            trees = [of_members.get(row, substitute) for row in range(first, first + self._per_device)]
            parts.append(_STACK(*(jax.device_put(tree, device) for tree in trees)))
        return self.topology.join(parts)

    def scatter(self, tree: PyTree) -> list[PyTree]:
        """The tree of each row of global arrays [rows, ...], on its device."""
        return [each for part in self.topology.split(tree) for each in _unstack(part, self._per_device)]


class TrainingProgram(abc.ABC):
    """Advances members by some iterations each; compiled once for all."""

    def __init__(
        self, placement: Placement, fn: Callable[..., PyTree], shapes: Callable[[], tuple[PyTree, ...]]
    ) -> None:
        """Traces nothing: a fault in what users wrote ends the members, which compile, and nothing else.

        Args:
          fn: a function of a state, other values and a number of iterations, which returns the state first;
            with 0 iterations it changes nothing.
          shapes: makes the shapes of one member's.
        """
        self.compiled: Any = None
        self._lock = threading.Lock()
        self._placement = placement
        self._fn = fn
        self._shapes = shapes

    def trace(self) -> Any:
        """The program (states, intervals, counts) -> (states, intervals, failed), as JAX traced it."""
        self._arguments = self._shapes()
        return self._trace()

    @abc.abstractmethod
    def _trace(self) -> Any:
        """`trace`, with the shapes in `_arguments`."""

    def compile(self) -> None:
        """Compiles, or waits for the member that does."""
        with self._lock:
            if self.compiled is None:
                self.compiled = self.trace().lower().compile()

    @abc.abstractmethod
    def advance(self, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Starts the iterations of some members, given (state, interval, count); the others make none."""


def training_program(iteration: Iteration, placement: Placement) -> TrainingProgram:
    """Members in batches; one by one on a CPU, which gains nothing from batches of small products."""
    learning = iteration.learning

    def shapes() -> tuple[PyTree, ...]:
        key = jax.eval_shape(lambda: jax.random.key(0))
        state = jax.eval_shape(iteration.init, key, learning.algorithm.hyperparameters(learning.config))
        return state, jax.eval_shape(learning.empty_interval), jax.ShapeDtypeStruct((), jnp.int32)

    if placement.topology.axis.platform == "cpu":
        return Turns(placement, iteration.repeat, shapes)
    return MemberBatch(placement, iteration.repeat_together, shapes)


class Turns(TrainingProgram):
    """A function of one member as a program with a member on each device, called until all had their turn.

    The arrays of a member are the program's: the first argument is donated, and nothing that is large, such
    as a memory, is copied on the way there or back. Arrays of all members would have to be.
    """

    def __init__(
        self, placement: Placement, fn: Callable[..., PyTree], shapes: Callable[[], tuple[PyTree, ...]]
    ) -> None:
        super().__init__(placement, fn, shapes)
        self._spares: dict[int, PyTree] = {}

    def _trace(self) -> Any:
        self._results = jax.eval_shape(self._fn, *self._arguments)
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

    def advance(self, arguments: Mapping[int, Any]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for members in self._placement.turns:
            present = [member for member in members if member in arguments]
            if not present:
                continue
            given = [
                arguments[member] if member in arguments else self._spare(at, arguments[present[0]])
                for at, member in enumerate(members)
            ]
            for at, (member, result) in enumerate(zip(members, self._call(given), strict=True)):
                if member in arguments:
                    found[member] = result
                else:
                    self._spares[at] = result[0]
        return found

    def _call(self, given: Sequence[Any]) -> list[Any]:
        """The results of one member on each device, in the order of the devices."""
        topology = self._placement.topology
        here = [jax.device_put(x, device) for x, device in zip(given, topology.local_devices, strict=True)]
        results = self.compiled(*topology.join([_change_leaves(_RAISE, x, self._arguments) for x in here]))
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


class MemberBatch(TrainingProgram):
    """A function [M, ...] of all members on a device as one program.

    Each call puts the members' arrays together and takes them apart again.
    """

    def _trace(self) -> Any:
        return self._placement.trace(self._fn, *self._arguments, donate=True)

    def advance(self, arguments: Mapping[int, Any]) -> dict[int, Any]:
        state, others, iterations = next(iter(arguments.values()))
        idle = dict.fromkeys(range(self._placement.rows), (state, others, jnp.zeros_like(iterations)))
        rows = self._placement.scatter(self.compiled(*self._placement.gather(idle | dict(arguments))))
        return {member: rows[member] for member in arguments}


class EpisodesProgram:
    """Plays the episodes of an evaluation for each member; compiled once for all."""

    def __init__(self, iteration: Iteration, task: EvaluationTask, placement: Placement) -> None:
        learning = iteration.learning
        self._reports = task.reports
        self._env = task.environment()
        self._agent = agent_of(learning.config, learning.algorithm.agent, self._env.spec)
        self._placement = placement
        self._lock = threading.Lock()
        # By number of episodes, modes and whether there are tasks: the program, and the function of it.
        self._programs: dict[tuple[int, Modes, bool], tuple[Any, SharedFunction]] = {}

    @property
    def compiled(self) -> tuple[Any, ...]:
        """The programs compiled so far."""
        # A copy first: another member may be compiling.
        return tuple(compiled for compiled, _ in list(self._programs.values()))

    def compile(self, state: Acting, episodes: int, modes: Modes, tasks: PyTree = None) -> None:
        """Compiles for a number of episodes, or waits for the member that does; `state` may be abstract."""
        kind = (episodes, modes, tasks is not None)
        with self._lock:
            if kind in self._programs:
                return
            play = player(self._agent, self._env, Axis(), episodes, modes, self._reports)
            given = jax.eval_shape(lambda: (jax.random.key(0), dealt(tasks, episodes)))
            of_device = each_member(play, self._placement.topology)
            compiled = self._placement.trace(of_device, state, *given, donate=False).lower().compile()
            self._programs[kind] = compiled, functools.partial(self._play, compiled)

    def play_function(self, episodes: int, modes: Modes, has_tasks: bool) -> SharedFunction:
        """The function of (policy state, key, tasks) by member that plays so many episodes for each."""
        return self._programs[episodes, modes, has_tasks][1]

    def _play(self, compiled: Any, arguments: Mapping[int, Any]) -> dict[int, Played]:
        rows = self._placement.scatter(compiled(*self._placement.gather(arguments)))
        return {member: rows[member] for member in arguments}


class Programs:
    """Everything that is compiled for members of one shape."""

    def __init__(self, config: Config, members: int, topology: Topology) -> None:
        """Builds everything for the configuration of any member; nothing is compiled.

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
        self.training = training_program(iteration, self._placement)
        self.plan = EvaluationPlan.of(config, spec)
        self.evaluation = {
            task: EpisodesProgram(iteration, task, self._placement) for task in self.plan.every_task
        }

    def runtime_of(self, member: int) -> DeviceRuntime:
        """The runtime of the member's device."""
        return self._runtimes[self._placement.device_of(member)]
