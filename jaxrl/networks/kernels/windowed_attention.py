"""Attention of each step to itself and the M steps before it, of its own episode, with relative positions.

The score of a query at step t and a key at step t - d is (q_t + u) k_{t-d} + (q_t + v) r_d, where r_d belongs
to the distance d alone (Dai et al. 2019, "Transformer-XL", section 3.3). No step sees the one M + 1 before
it, whatever came before the sequence, so a sequence gives what its steps give one after the other.

Steps before the sequence come from a memory of M entries; some may be empty.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# Larger than any score, and finite: the difference of two infinities is NaN.
MASKED = -1e30
# Queries of a block. Larger blocks compute more scores that are masked; smaller ones copy keys and values
# more often, and their products are slower (measured on CPU, docs/performance.md).
_QUERIES = 32
# A longer memory has larger blocks, so that a window has about this many and one more.
_BLOCKS_OF_MEMORY = 8


class Biases(NamedTuple):
    """float32[heads, D / heads] each, added to every query: for contents (u) and for positions (v)."""

    content: Array
    position: Array


def sinusoids(length: int, size: int) -> Array:
    """float32[length, size]: sines and cosines of 0, 1, ..., length - 1 (Vaswani et al. 2017)."""
    half = (size + 1) // 2
    rate = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(length, dtype=jnp.float32)[:, None] * rate[None]
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)[:, :size]


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def attend_sequence(
    query_LNHK: Array,
    key_TNHK: Array,
    value_TNHK: Array,
    segment_TN: Array,
    position_WHK: Array,
    biases: Biases,
    keep: bool = True,
) -> Array:
    """Attention of every step of a sequence to a window that ends with it.

    Sequences are computed in blocks; each block sees itself and the M entries before it, so the cost is
    linear in the length. Its gradient needs one array of the size of all scores, not five.

    Args:
      query_LNHK: in the dtype of the products.
      key_TNHK, value_TNHK: of T = M + L entries, the memory's first; finite, as what is masked has a weight
        of 0, and 0 * NaN is NaN.
      segment_TN: int32, the episode of each; -1 where the memory holds nothing.
      position_WHK: r of the W = M + 1 distances from 0 to M.
      biases: see there.
      keep: whether the weights are kept for the gradient, or computed again.

    Returns:
      [L, N, H K] in the dtype of the products, from sums in float32.
    """
    return _forward(query_LNHK, key_TNHK, value_TNHK, segment_TN, position_WHK, biases, keep)[0]


def _forward(
    query: Array, key: Array, value: Array, segment: Array, distances: Array, biases: Biases, keep: bool
) -> tuple[Array, PyTree]:
    blocks = _Blocks.of(query, distances)
    weights, total = _weights(blocks, query, key, segment, distances, biases)
    out = blocks.join(_batched(weights, blocks.windows(value), 4, 3, 3) / total)
    out = out.reshape(*out.shape[:2], -1).astype(query.dtype)
    kept = (weights, total) if keep else None
    return out, (query, key, value, segment, distances, biases, out, kept)


def _weights(
    blocks: _Blocks, query: Array, key: Array, segment: Array, distances: Array, biases: Biases
) -> tuple[Array, Array]:
    """(exponentials of the scores in the dtype of the products, their sums for each query)."""
    content, position = _with_biases(query, biases)
    scores = _batched(blocks.split(content), blocks.windows(key), 4, 4, 3)
    scores = scores + blocks.by_key(_batched(blocks.rows(position), blocks.padded(distances), 2, 2, 1))
    scores = jnp.where(blocks.visible(segment)[None], scores, MASKED)
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights.astype(query.dtype), weights.sum(axis=-1, keepdims=True)


def _with_biases(query: Array, biases: Biases) -> tuple[Array, Array]:
    """Queries for contents and for positions, divided by sqrt(K) here, since scores have more numbers."""
    content, position = (
        ((query.astype(jnp.float32) + b[None, None]) / math.sqrt(query.shape[-1])).astype(query.dtype)
        for b in biases
    )
    return content, position


def _backward(keep: bool, saved: PyTree, gradient: Array) -> tuple[Any, ...]:
    query, key, value, segment, distances, biases, out, kept = saved
    dtype = query.dtype
    blocks = _Blocks.of(query, distances)
    weights, total = kept if keep else _weights(blocks, query, key, segment, distances, biases)
    content, position = _with_biases(query, biases)
    gradient, out = (a.astype(jnp.float32).reshape(query.shape) for a in (gradient, out))
    # With respect to the sums of values by weights that are not divided by their total.
    dout = blocks.split(gradient) / total
    # The mean of the gradients of the weights is (out . gradient), without a sum over the window.
    mean = blocks.split((out * gradient).sum(axis=-1, keepdims=True)) / total
    dvalues = _batched(weights, dout.astype(dtype), 3, 3, 3)
    dweights = _batched(dout.astype(dtype), blocks.windows(value), 4, 4, 3)
    dscores = (weights * (dweights - mean)).astype(dtype)
    dcontent = _batched(dscores, blocks.windows(key), 4, 3, 3)
    dkeys = _batched(dscores, blocks.split(content), 3, 3, 3)
    by_distance = blocks.by_distance(dscores)
    dposition = _batched(by_distance, blocks.padded(distances), 2, 1, 1).reshape(dcontent.shape)
    ddistances = blocks.unpadded(_batched(by_distance, blocks.rows(position), 1, 1, 1))
    dcontent, dposition = (a / math.sqrt(query.shape[-1]) for a in (dcontent, dposition))
    return (
        blocks.join(dcontent + dposition).astype(dtype),
        blocks.sum_of_windows(dkeys).astype(key.dtype),
        blocks.sum_of_windows(dvalues).astype(value.dtype),
        None,
        ddistances.astype(distances.dtype),
        Biases(dcontent.sum(axis=(1, 2, 3)), dposition.sum(axis=(1, 2, 3))),
    )


attend_sequence.defvjp(_forward, _backward)


class _Blocks(NamedTuple):
    """The blocks of a sequence: arrays of [H, N, blocks, ...], so that all products are batches of matrices.

    Attributes:
      size: queries of each, B.
      before: entries before each in its window, at least `memory`; of several blocks a multiple of B.
      memory: entries that a query sees besides itself, M.
      heads: H.
      length: steps of the sequence, L; the last block may have more.
    """

    number: int
    size: int
    before: int
    memory: int
    heads: int
    length: int

    @classmethod
    def of(cls, query_LNHK: Array, position_WHK: Array) -> _Blocks:
        length, _, heads, _ = query_LNHK.shape
        memory = len(position_WHK) - 1
        wanted = min(memory, max(_QUERIES, -(-memory // _BLOCKS_OF_MEMORY)))
        number = max(1, round(length / wanted))
        size = -(-length // number)
        before = memory if number == 1 else -(-memory // size) * size
        return cls(number, size, before, memory, heads, length)

    @property
    def window(self) -> int:
        """Entries that a block sees."""
        return self.before + self.size

    def split(self, x_LNHK: Array) -> Array:
        """[H, N, blocks, B, K]."""
        x = self._padded(x_LNHK.transpose(2, 1, 0, 3), 0)
        return x.reshape(*x.shape[:2], self.number, self.size, x.shape[-1])

    def rows(self, x_LNHK: Array) -> Array:
        """The same as matrices: [H, N * blocks * B, K]."""
        return self.split(x_LNHK).reshape(self.heads, -1, x_LNHK.shape[-1])

    def join(self, x: Array) -> Array:
        """The reverse of `split`."""
        x = x.reshape(*x.shape[:2], -1, x.shape[-1])[:, :, : self.length]
        return x.transpose(2, 1, 0, 3)

    def windows(self, x_TNHK: Array) -> Array:
        """[H, N, blocks, before + B, K]: each block with the entries before it."""
        x = self._padded(x_TNHK.transpose(2, 1, 0, 3), self.before - self.memory)
        if self.number == 1:
            return x[:, :, None]
        x = x.reshape(*x.shape[:2], -1, self.size, x.shape[-1])
        return jnp.concatenate([x[:, :, i : i + self.number] for i in range(self._parts)], axis=3)

    def sum_of_windows(self, x: Array) -> Array:
        """The gradient of `windows`, [T, N, H, K]."""
        if self.number == 1:
            return x[:, :, 0].transpose(2, 1, 0, 3)
        x = x.reshape(*x.shape[:3], self._parts, self.size, x.shape[-1])
        none = [(0, 0)]
        placed = [
            jnp.pad(x[:, :, :, i], [*none * 2, (i, self._parts - 1 - i), *none * 2])
            for i in range(self._parts)
        ]
        total: Array = functools.reduce(jnp.add, placed)
        total = total.reshape(*total.shape[:2], -1, total.shape[-1])
        first = self.before - self.memory
        return total[:, :, first : first + self.memory + self.length].transpose(2, 1, 0, 3)

    def visible(self, segment_TN: Array) -> Array:
        """bool[N, blocks, B, before + B]: which entries of its window a query sees."""
        others = self.windows(segment_TN[..., None, None])[0, ..., 0]
        own = others[..., self.before :]
        distance = jnp.arange(self.size)[:, None] + self.before - jnp.arange(self.window)[None]
        inside = (distance >= 0) & (distance <= self.memory)
        return (own[..., None] == others[:, :, None]) & inside[None, None]

    def padded(self, position_WHK: Array) -> Array:
        """[H, before + B + 1, K]: zeros, distance M to 0, and zeros.

        Products with it have rows that are one longer than a window. Reread in rows of a window's length, the
        numbers of row i move to the right by i: each to its key.
        """
        reverse = position_WHK[::-1].swapaxes(0, 1)
        return jnp.pad(reverse, ((0, 0), (self.before - self.memory, self.size), (0, 0)))

    def unpadded(self, x: Array) -> Array:
        """The reverse of `padded`."""
        first = self.before - self.memory
        return x[:, first : first + self.memory + 1].swapaxes(0, 1)[::-1]

    def by_key(self, x: Array) -> Array:
        """[H, N * blocks * B, before + B + 1] by distance as [H, N, blocks, B, before + B] by key."""
        flat = x.reshape(self.heads, -1, self.number, self.size * (self.window + 1))
        return flat[..., : self.size * self.window].reshape(*flat.shape[:3], self.size, self.window)

    def by_distance(self, x: Array) -> Array:
        """The reverse of `by_key` for an array with zeros where a query sees nothing."""
        flat = x.reshape(*x.shape[:3], -1)
        flat = jnp.pad(flat, [(0, 0)] * 3 + [(0, self.size)])
        return flat.reshape(self.heads, -1, self.window + 1)

    @property
    def _parts(self) -> int:
        """Blocks of B entries in a window."""
        return self.window // self.size

    def _padded(self, x: Array, before: int) -> Array:
        """[H, N, steps, K] with zeros for the entries that only fill blocks."""
        after = self.number * self.size - self.length
        return jnp.pad(x, [(0, 0), (0, 0), (before, after), (0, 0)]) if before or after else x


def windows(x: Array, count: int, memory: int) -> Array:
    """[M + L, ...] as [parts, M + L / parts, ...]: each part with the M entries before it."""
    if count == 1:
        return x[None]
    own = x[memory:].reshape(count, -1, *x.shape[1:])
    before = x[: len(x) - memory].reshape(own.shape)[:, :memory]
    return jnp.concatenate([before, own], axis=1)


def pad(x: Array, count: int, value: int = 0) -> Array:
    """`x` with `count` steps more."""
    return jnp.pad(x, [(0, count)] + [(0, 0)] * (x.ndim - 1), constant_values=value) if count else x


def _batched(x: Array, y: Array, axis_x: int, axis_y: int, batch: int) -> Array:
    """Products over an axis of each for every index of the first `batch` axes, in float32."""
    both = tuple(range(batch))
    return jax.lax.dot_general(
        x, y, (((axis_x,), (axis_y,)), (both, both)), preferred_element_type=jnp.float32
    )
