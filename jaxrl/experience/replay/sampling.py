"""Draws without replacement; pure functions of arrays.

Both weighted draws have the distribution of drawing one row after the other, each in proportion to its weight
among those that are left.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl.experience.replay import threefry
from jaxrl.types import Array


def draw_weighted(key: Array, weights: Array, count: int, few_kernels: bool) -> tuple[Array, Array]:
    """(int32[count] different indices in proportion to their weights, bool[count] whether there was one).

    Args:
      key: of this draw.
      weights: float32[N], at least 0; N is at least `count`.
      count: rows to draw.
      few_kernels: all in one race, which suits a GPU; else one after the other, which needs no random number
        for each row of the buffer and no sorting.
    """
    return by_race(key, weights, count) if few_kernels else in_turn(key, weights[None], count)


def by_race(key: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """`draw_weighted` by the largest of log(weight) + Gumbel noise (Efraimidis and Spirakis 2006)."""
    # Of 2^23 uniform numbers, as is usual, the largest would often be equal.
    noise = jax.random.gumbel(key, weights.shape, jnp.float32, mode="high")
    drawn = weights > 0
    score = jnp.where(drawn, jnp.log(jnp.where(drawn, weights, 1.0)) + noise, -jnp.inf)
    best, index = jax.lax.top_k(score, count)
    return index.astype(jnp.int32), best > -jnp.inf


def in_turn(key: Array, weights: Array, count: int, allowed: Array | None = None) -> tuple[Array, Array]:
    """`draw_weighted` one after the other, from sums over blocks of about sqrt(M R) rows.

    Every weight is read once, for the sums; nothing of their size is written.

    Args:
      key: of this draw.
      weights: float32[M, R].
      count: rows to draw.
      allowed: bool[R], False: as if the weight were 0 there; None: everywhere True.

    Returns:
      (int32[count] indices into the M R weights, bool[count]).
    """
    members, size = weights.shape
    width = _width(members, size)
    blocks = -(-size // width)
    allowed = jnp.ones(size, bool) if allowed is None else allowed
    sums = block_sums(weights, allowed)

    def row(block: Array) -> tuple[Array, Array]:
        """(int32[], float32[width]): where the row of a block begins, and its weights."""
        begin = block % blocks * width
        # The last block of a member may be shorter: what is before it is left out.
        start = jnp.minimum(begin, size - width)
        found = jax.lax.dynamic_slice(weights, (block // blocks, start), (1, width))[0]
        inside = jax.lax.dynamic_slice(allowed, (start,), (width,)) & (start + jnp.arange(width) >= begin)
        return block // blocks * size + start, jnp.where(inside, found, 0.0)

    def turn(left: tuple[Array, Array], xs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (sums, drawn), (i, noise) = left, xs
        block = _pick(sums, noise[0])
        start, found = row(block)
        within = drawn - start
        gone = jnp.where((within >= 0) & (within < width), within, width)
        found = found.at[gone].set(0.0, mode="drop")
        chosen = _pick(found, noise[1])
        # Summed anew: a difference would keep a remainder of rows that are gone.
        left = sums.at[block].set(found.at[chosen].set(0.0).sum()), drawn.at[i].set(start + chosen)
        return left, found[chosen] > 0

    noise = jax.random.uniform(key, (count, 2), jnp.float32)
    nothing = jnp.full(count, -size, jnp.int32)
    (_, index), found = jax.lax.scan(turn, (sums, nothing), (jnp.arange(count), noise))
    return index, found


def block_sums(weights: Array, allowed: Array) -> Array:
    """float32[blocks], the sums that `in_turn` draws from; their order is its own."""
    members, size = weights.shape
    width = _width(members, size)
    padded = jnp.pad(jnp.where(allowed[None], weights, 0.0), ((0, 0), (0, -size % width)))
    return padded.reshape(-1, width).sum(axis=1)


def draw_uniform(key: Array, size: Array, count: int, groups: int) -> tuple[Array, Array]:
    """(int32[groups, count] different indices below `size`, bool[count] whether there was one to draw).

    One index from each of `count` equal parts of a circle that is turned at random, so that every index has
    the same probability (but for a relative 2^-32 `size`), without work for each row.

    Args:
      key: of this draw; one for all groups, since to make a key takes as long as to draw four numbers.
      size: int32[], at most 2^31 / `count`.
      count: rows to draw of each group.
      groups: that are drawn from alike and independently.
    """
    part = jnp.arange(count + 1)
    # As `part * size // count`, which could be too large for an int32.
    edge = part * (size // count) + part * (size % count) // count
    length = edge[1:] - edge[:-1]
    limit = jnp.maximum(jnp.append(length, size), 1)
    number = threefry.bits(key, (groups, count + 1)) % limit.astype(jnp.uint32)[None]
    within, turned = jnp.split(number.astype(jnp.int32), [count], axis=1)
    return (edge[None, :-1] + within + turned) % limit[-1], length > 0


def _pick(weights: Array, noise: Array) -> Array:
    """int32[], one index in proportion to its weight, by `noise` uniform on [0, 1).

    Through sums of about sqrt(W) weights: XLA for CPU adds up long rows slowly.
    """
    width = math.isqrt(len(weights) - 1) + 1
    parts = jnp.pad(weights, (0, -len(weights) % width)).reshape(-1, width)
    sums = parts.sum(axis=1)
    ends = jnp.cumsum(sums)
    target = noise * ends[-1]
    part = _first(ends > target, sums)
    within = _first(jnp.cumsum(parts[part]) > target - (ends[part] - sums[part]), parts[part])
    return part * width + within


def _first(reached: Array, weights: Array) -> Array:
    """int32[], the first index that is reached and has a weight; the largest, if rounding leaves none."""
    reached = reached & (weights > 0)
    return jnp.where(reached.any(), jnp.argmax(reached), jnp.argmax(weights))


def _width(members: int, size: int) -> int:
    """Rows of a block."""
    return min(math.isqrt(members * size - 1) + 1, size)
