"""Layers of graph networks on tables of neighbours: convolution, attention, and a heterogeneous transformer.

All take the nodes of one or several graphs in one array [M, ...]. Padded edges have no part in the results,
and a padded node none in other nodes'.
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.layers import Dense, orthogonal
from jaxrl.types import Array

_SLOPE = 0.2  # of LeakyReLU, Velickovic et al. 2018


class GraphConvolution(nn.Module):
    """A layer of Kipf and Welling 2017, "Semi-Supervised Classification with Graph Convolutional Networks".

        H' = relu(D^-1/2 (A + I) D^-1/2 H W + b)

    where D counts the edges that lead to a node, its own loop included.
    """

    width: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, edges: Neighbours) -> Array:
        """From [M, F] to [M, width]."""
        scale = jax.lax.rsqrt(1 + jnp.sum(edges.mask, axis=1).astype(jnp.float32)).astype(self.dtype)[:, None]
        weight = self.param("kernel", orthogonal(math.sqrt(2)), (x.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        y = matmul(x.astype(self.dtype), weight.astype(self.dtype)).astype(self.dtype) * scale
        around = jnp.sum(jnp.where(edges.mask[..., None], edges.gather(y), 0), axis=1)
        return nn.relu(scale * (y + around) + bias[None]).astype(self.dtype)


class GraphAttention(nn.Module):
    """A layer of Velickovic et al. 2018, "Graph Attention Networks", equations 1 to 5.

    e(s, t) = LeakyReLU(a_source . W h_s + a_target . W h_t); a node adds up W h_s of its in-neighbours and of
    itself by the softmax of e; the heads are joined, and ELU follows.
    """

    width: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, edges: Neighbours) -> Array:
        """From [M, F] to [M, width]."""
        size = self.width // self.heads
        h = Dense(self.width, 1.0, self.dtype)(x).reshape(-1, self.heads, size)
        init = nn.initializers.glorot_uniform()
        source, target = (
            jnp.sum(h * self.param(name, init, (self.heads, size)).astype(self.dtype)[None], axis=-1)
            for name in ("source", "target")
        )
        own = nn.leaky_relu(source + target, _SLOPE)[:, None]
        others = nn.leaky_relu(edges.gather(source) + target[:, None], _SLOPE)
        score = jnp.concatenate([own, others], axis=1)
        is_there = jnp.concatenate([jnp.ones_like(edges.mask[:, :1]), edges.mask], axis=1)
        share = masked_softmax(score, is_there[..., None])[..., None]
        sent = jnp.where(edges.mask[..., None, None], edges.gather(h), 0)
        y = share[:, 0] * h + jnp.sum(share[:, 1:] * sent, axis=1)
        return nn.elu(y).reshape(-1, self.width)


class KindDense(nn.Module):
    """A linear layer with separate weights for each kind of row."""

    features: int
    num_kinds: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, kinds: tuple[int, ...] | Array) -> Array:
        """From [M, F] to [M, features].

        Args:
          kinds: the number of rows of each kind from the first on, if the rows are sorted by kind; kinds that
            come last and have no rows may be left out. Or int32[M].
        """
        shape = (self.num_kinds, x.shape[-1], self.features)
        kernels = self.param("kernel", _glorot(axes=1), shape).astype(self.dtype)
        biases = self.param("bias", nn.initializers.zeros, (self.num_kinds, self.features))
        weights = [(kernels[kind], biases[kind]) for kind in range(self.num_kinds)]
        x = x.astype(self.dtype)
        if isinstance(kinds, tuple):
            ends = [sum(kinds[: kind + 1]) for kind in range(len(kinds))]
            parts = [x[end - count : end] for count, end in zip(kinds, ends, strict=True)]
            found = [
                matmul(part, weight) + bias[None]
                for part, (weight, bias) in zip(parts, weights, strict=False)
                if part.shape[0] != 0
            ]
            return jnp.concatenate(found).astype(self.dtype)
        every = jnp.stack([matmul(x, weight) + bias[None] for weight, bias in weights])
        return every[kinds, jnp.arange(len(x))].astype(self.dtype)


class GraphTransformer(nn.Module):
    """A layer of Hu et al. 2020, "Heterogeneous Graph Transformer", equations 3 to 5.

    For an edge of kind r from a node s to a node t, and each head of size d:

        attention(s, r, t) = softmax over the edges to t of  (K(s) W_r^att . Q(t)) mu(s, r, t) / sqrt(d)
        H'(t) = A(gelu(sum over those edges of attention * V(s) W_r^msg)) + H(t)

    K, Q, V and A are linear layers of each kind of node; mu is a prior learnt for each head and relation: the
    kinds of s, the edge, and t. A node without edges stays what it is. W_r^att and W_r^msg are applied at t,
    to the query and to the sum: the same numbers, from fewer products if a node has several edges.
    """

    width: int
    heads: int
    num_kinds: int
    num_relations: int
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        dense = lambda: KindDense(self.width, self.num_kinds, self.dtype)  # noqa: E731
        self.key = dense()
        self.query = dense()
        self.value = dense()
        self.out = dense()
        size = self.width // self.heads
        shape = (self.num_relations, self.heads, size, size)
        self.attention = self.param("attention", _glorot(axes=2), shape)
        self.message = self.param("message", _glorot(axes=2), shape)
        relation = (self.num_kinds, self.num_relations, self.num_kinds, self.heads)
        self.prior = self.param("prior", nn.initializers.ones, relation)

    def memory(self, x: Array, kinds: tuple[int, ...] | Array) -> tuple[Array, Array]:
        """K and V of nodes [M, width], each [M, width]; `kinds` as `KindDense` takes them."""
        return self.key(x, kinds), self.value(x, kinds)

    def __call__(
        self,
        x: Array,
        kinds: tuple[int, ...] | Array,
        kind_of: Array,
        edges: Neighbours,
        memory: tuple[Array, Array],
        source_kinds: Array,
    ) -> Array:
        """The nodes [P, width] that edges lead to, after the layer.

        Args:
          kinds: of `x`, as `KindDense` takes them.
          memory: of the nodes that edges come from.
          source_kinds: int32[P, D], the kinds of these.
        """
        columns = len(edges.kinds)
        relations = self.num_relations
        of_head = jnp.repeat(jnp.eye(self.heads, dtype=self.dtype), self.width // self.heads, axis=0)
        keys, values = (edges.columns(part) for part in memory)
        asked = matmul(self.query(x, kinds), self._join(self.attention, transpose=True)).astype(self.dtype)
        of_relation = jnp.split(asked, relations, axis=1)
        scores = [matmul(keys[d] * of_relation[edges.kinds[d]], of_head) for d in range(columns)]
        score = jnp.stack(scores, axis=1).astype(self.dtype)
        prior = self.prior[source_kinds, jnp.array(edges.kinds)[None], kind_of[:, None]].astype(self.dtype)
        share = masked_softmax(score * prior / math.sqrt(self.width // self.heads), edges.mask[..., None])
        told = [
            jnp.where(edges.mask[:, d, None], values[d], 0)
            * matmul(share[:, d], of_head.T).astype(self.dtype)
            for d in range(columns)
        ]
        parts = [[told[d] for d in range(columns) if edges.kinds[d] == r] for r in range(relations)]
        summed = jnp.concatenate([sum(part, jnp.zeros_like(x)) for part in parts], axis=1)
        y = matmul(summed, self._join(self.message, transpose=False)).astype(self.dtype)
        has_edge = jnp.any(edges.mask, axis=1)[:, None]
        return x + jnp.where(has_edge, self.out(nn.gelu(y), kinds), 0)

    def _join(self, blocks: Array, transpose: bool) -> Array:
        """Matrices [R, H, d, d] as one, with a block of each head on the diagonal of each relation.

        A CPU is slow at many small products; in the large one all but one of `heads` numbers are zeros.

        Returns:
          [R W, W], or [W, R W] with `transpose`, whose blocks are transposed too.
        """
        eye = jnp.eye(self.heads, dtype=self.dtype)
        wide = jnp.einsum("rhab,hg->rhagb", blocks.astype(self.dtype), eye)
        joined = wide.reshape(self.num_relations * self.width, self.width)
        return joined.T if transpose else joined


def masked_softmax(score: Array, mask: Array) -> Array:
    """The softmax over axis 1 of [P, D, H] among what `mask` [P, D, 1] allows; zeros where that is nothing.

    In float32, as gradients of small shares would vanish otherwise.
    """
    x = jnp.where(mask, score.astype(jnp.float32), -jnp.inf)
    largest = jax.lax.stop_gradient(jnp.max(x, axis=1, keepdims=True))
    weight = jnp.where(mask, jnp.exp(jnp.where(mask, x - jnp.where(mask, largest, 0), 0)), 0)
    total = jnp.sum(weight, axis=1, keepdims=True)
    return (weight / jnp.where(total > 0, total, 1)).astype(score.dtype)


def _glorot(axes: int) -> nn.initializers.Initializer:
    """Glorot's uniform weights for each of a stack of matrices, whose first `axes` dimensions count them."""
    return nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", batch_axis=tuple(range(axes)))


@flax.struct.dataclass
class Neighbours:
    """The edges that lead to each of P nodes, at most D to one. Edges in one column are of one kind.

    A sum over edges is a gather and a sum over one axis. XLA:CPU computes segment sums row by row, and so
    are the gradients of gathers, unless the table is fixed: then both directions are gathers.

    Attributes:
      index: int32[P, D], the node that an edge comes from; anything if there is no edge.
      mask: bool[P, D], True for edges.
      kinds: of the edges in each of the D columns.
      reverse: of a fixed table the edges that come from each of M nodes, as places in a flat [P * D], and
        which of them are there: int32 and bool of [M, D']. Else None.
    """

    index: Array
    mask: Array
    kinds: tuple[int, ...] = flax.struct.field(pytree_node=False)
    reverse: tuple[Array, Array] | None = None

    def gather(self, x: Array) -> Array:
        """The rows of the nodes that edges come from: from [M, ...] to [P, D, ...]."""
        return jnp.stack(self.columns(x), axis=1)

    def columns(self, x: Array) -> tuple[Array, ...]:
        """The same column by column: D arrays of [P, ...]."""
        if self.reverse is None:
            return _columns(x, self.index)
        return _fixed_columns(x, self.index, *self.reverse)


def neighbours_of(source: np.ndarray, target: np.ndarray, kind: np.ndarray, count: int) -> Neighbours:
    """The table of edges, int[E] each, for nodes 0 to `count` - 1, as a constant."""
    # The columns, kind by kind.
    places = []
    masks = []
    kinds = list[int]()
    for one in sorted(set(kind.tolist())) or [0]:
        (edges,) = np.nonzero(kind == one)
        place, mask = _slots(target[edges], count)
        places.append(edges[place] if len(edges) else place)
        masks.append(mask)
        kinds += [one] * mask.shape[1]
    place = np.concatenate(places, axis=1)
    mask = np.concatenate(masks, axis=1)
    index = np.zeros(place.shape, np.int32)
    index[mask] = source[place[mask]]
    # Seen from its source an edge in place (p, d) is the number p * D + d.
    flat = np.zeros(len(source), np.int32)
    flat[place[mask]] = np.flatnonzero(mask)
    leaving, is_leaving = _slots(source, count)
    reverse = np.zeros(leaving.shape, np.int32)
    reverse[is_leaving] = flat[leaving[is_leaving]]
    return Neighbours(index, mask, tuple(kinds), (reverse, is_leaving))  # type: ignore[arg-type]


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
