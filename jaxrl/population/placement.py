"""The places of a population's members on devices, and the transfers there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.parallel.sharding import SHARDED, Topology
from jaxrl.types import PyTree


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

    def trace(self, fn: Callable[..., PyTree], *arguments: PyTree) -> Any:
        """The traced program that applies `fn` of one member to all rows.

        Args:
          fn: a function of one member.
          arguments: the shapes of one member's arguments.
        """
        return self.trace_members(each_member(fn, self.topology), *arguments, donate=False)

    def trace_members(self, fn: Callable[..., PyTree], *arguments: PyTree, donate: bool = True) -> Any:
        """The traced program that applies `fn` of all members on a device to the rows of each.

        Args:
          fn: a function of [M, ...].
          arguments: the shapes of one member's arguments.
          donate: donate the buffers of the first argument.
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
            parts.append(self._stack(*(jax.device_put(tree, device) for tree in trees)))
        return self.topology.join(parts)

    def scatter(self, tree: PyTree) -> list[PyTree]:
        """The tree of each row of global arrays [rows, ...], on its device."""
        return [each for part in self.topology.split(tree) for each in self._unstack(part)]

    @cached_property
    def _stack(self) -> Callable[..., PyTree]:
        return jax.jit(lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees))

    @cached_property
    def _unstack(self) -> Callable[[PyTree], Sequence[PyTree]]:
        def parts(tree: PyTree) -> list[PyTree]:
            return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(self._per_device)]

        return jax.jit(parts)
