"""Turns of a population's members on CPUs: one after the other on each device, each in its own arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.parallel.sharding import SHARDED
from jaxrl.population.placement import Placement
from jaxrl.types import Array, PyTree


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
        """Starts the program for some members; their results by member.

        Args:
          compiled: of `trace`.
          arguments: by member.
        """
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


# Between a number and an array of one, which can be joined with other devices'.
_RAISE = jax.jit(lambda numbers: [x[None] for x in numbers])
_LOWER = jax.jit(lambda numbers: [x[0] for x in numbers])


def _change_leaves(change: Callable[[list[Array]], list[Array]], tree: PyTree, like: PyTree) -> PyTree:
    """The tree with `change` for all leaves that are numbers in `like`; the others as they are."""
    leaves, structure = jax.tree.flatten(tree)
    numbers = [i for i, x in enumerate(jax.tree.leaves(like)) if x.ndim == 0]
    for i, number in zip(numbers, change([leaves[i] for i in numbers]), strict=True):
        leaves[i] = number
    return jax.tree.unflatten(structure, leaves)
