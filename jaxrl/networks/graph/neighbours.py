"""Edges as a table: the in-neighbours of each node, padded to one number.

A sum over edges is then a gather and a sum over one axis. XLA:CPU computes segment sums row by row, and so
are the gradients of gathers, unless the table is fixed: then both directions are gathers (`of_fixed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.types import Array


@flax.struct.dataclass
class Neighbours:
    """The edges that lead to each of P nodes, at most D to one. Edges in one column are of one kind.

    Attributes:
      index: int32[P, D], the node that an edge comes from; anything if there is no edge.
      mask: bool[P, D], True for edges.
      kinds: of the edges in each of the D columns.
      reverse: of a fixed table, which edges come from each node; else None.
    """

    index: Array
    mask: Array
    kinds: tuple[int, ...] = flax.struct.field(pytree_node=False)
    reverse: Reverse | None = None

    def gather(self, x: Array) -> Array:
        """The rows of the nodes that edges come from: from [M, ...] to [P, D, ...]."""
        return jnp.stack(self.columns(x), axis=1)

    def columns(self, x: Array) -> tuple[Array, ...]:
        """The same column by column: D arrays of [P, ...]."""
        if self.reverse is None:
            return _columns(x, self.index)
        return _fixed_columns(x, self.index, self.reverse.index, self.reverse.mask)


@flax.struct.dataclass
class Reverse:
    """The edges that come from each of M nodes, as places in a flat [P * D]; int32 and bool of [M, D']."""

    index: Array
    mask: Array


@dataclass(frozen=True)
class EdgeList:
    """Edges of one or several graphs in numpy: int[E] source nodes, target nodes and kinds."""

    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray

    def neighbours(self, count: int) -> Neighbours:
        """The table of these edges for nodes 0 to `count` - 1, as a constant."""
        # The columns, kind by kind.
        places = []
        masks = []
        kinds = list[int]()
        for kind in sorted(set(self.kind.tolist())) or [0]:
            (edges,) = np.nonzero(self.kind == kind)
            place, mask = _slots(self.target[edges], count)
            places.append(edges[place] if len(edges) else place)
            masks.append(mask)
            kinds += [kind] * mask.shape[1]
        place = np.concatenate(places, axis=1)
        mask = np.concatenate(masks, axis=1)
        index = np.zeros(place.shape, np.int32)
        index[mask] = self.source[place[mask]]
        # Seen from its source an edge in place (p, d) is the number p * D + d.
        flat = np.zeros(len(self.source), np.int32)
        flat[place[mask]] = np.flatnonzero(mask)
        leaving, is_leaving = _slots(self.source, count)
        reverse = np.zeros(leaving.shape, np.int32)
        reverse[is_leaving] = flat[leaving[is_leaving]]
        return Neighbours(index, mask, tuple(kinds), Reverse(reverse, is_leaving))  # type: ignore[arg-type]


def _slots(node: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(edges of each node, int[count, D], in their order; bool, which of them are there)."""
    degree = np.bincount(node, minlength=count)
    widest = max(1, int(degree.max(initial=0)))
    order = np.argsort(node, kind="stable")
    slot = np.arange(len(node)) - np.repeat(np.cumsum(degree) - degree, degree)
    place = np.zeros((count, widest), np.int64)
    mask = np.zeros((count, widest), bool)
    place[node[order], slot], mask[node[order], slot] = order, True
    return place, mask


def _columns(x: Array, index: Array) -> tuple[Array, ...]:
    return tuple(x[index[:, d]] for d in range(index.shape[1]))


@jax.custom_vjp
def _fixed_columns(x: Array, index: Array, reverse: Array, is_there: Array) -> tuple[Array, ...]:
    return _columns(x, index)


def _forward(x: Array, index: Array, reverse: Array, is_there: Array) -> tuple[tuple[Array, ...], Any]:
    return _columns(x, index), (reverse, is_there)


def _backward(saved: tuple[Array, Array], gradients: tuple[Array, ...]) -> tuple[Array, None, None, None]:
    """The gradient of a node is the sum over the edges that come from it."""
    reverse, is_there = saved
    gradient = jnp.stack(gradients, axis=1)
    flat = gradient.reshape(-1, *gradient.shape[2:])
    total = jnp.zeros((len(reverse), *flat.shape[1:]), flat.dtype)
    for d in range(reverse.shape[1]):
        mask = is_there[:, d].reshape(-1, *(1,) * (flat.ndim - 1))
        total = total + jnp.where(mask, flat[reverse[:, d]], 0)
    return total, None, None, None


_fixed_columns.defvjp(_forward, _backward)
