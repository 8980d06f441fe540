"""Draws without replacement; pure functions of arrays.

Both weighted draws have the distribution of drawing one row after the other, each in proportion to its weight
among those that are left.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

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
    return by_race(key, weights, count) if few_kernels else in_turn(key, weights, count)


def by_race(key: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """`draw_weighted` by the largest of log(weight) + Gumbel noise (Efraimidis and Spirakis 2006)."""
    # Of 2^23 uniform numbers, as is usual, the largest would often be equal.
    noise = jax.random.gumbel(key, weights.shape, jnp.float32, mode="high")
    drawn = weights > 0
    score = jnp.where(drawn, jnp.log(jnp.where(drawn, weights, 1.0)) + noise, -jnp.inf)
    best, index = jax.lax.top_k(score, count)
    return index.astype(jnp.int32), best > -jnp.inf


def in_turn(key: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """`draw_weighted` one after the other, from sums over blocks of about sqrt(N) rows."""
    width = math.isqrt(len(weights) - 1) + 1
    padding = -len(weights) % width
    blocks = jnp.pad(weights, (0, padding)).reshape(-1, width)

    def turn(left: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        blocks, sums = left
        block = _pick(sums, noise[0])
        within = _pick(blocks[block], noise[1])
        found = blocks[block, within] > 0
        row = blocks[block].at[within].set(0.0)
        # Summed anew: a difference would keep a remainder of rows that are gone.
        left = blocks.at[block].set(row), sums.at[block].set(row.sum())
        return left, (block * width + within, found)

    noise = jax.random.uniform(key, (count, 2), jnp.float32)
    _, (index, found) = jax.lax.scan(turn, (blocks, blocks.sum(axis=1)), noise)
    return jnp.minimum(index, len(weights) - 1).astype(jnp.int32), found


def draw_uniform(key: Array, size: Array, count: int) -> tuple[Array, Array]:
    """(int32[count] different indices below `size`, bool[count] whether there was one to draw).

    One index from each of `count` equal parts of a circle that is turned at random, so that every index has
    the same probability, without work for each row.

    Args:
      key: of this draw.
      size: int32[], at most 2^31 / `count`.
      count: rows to draw.
    """
    turn_key, part_key = jax.random.split(key)
    part = jnp.arange(count + 1)
    # As `part * size // count`, which could be too large for an int32.
    edge = part * (size // count) + part * (size % count) // count
    length = edge[1:] - edge[:-1]
    within = jax.random.randint(part_key, (count,), 0, jnp.maximum(length, 1))
    turned = jax.random.randint(turn_key, (), 0, jnp.maximum(size, 1))
    return (edge[:-1] + within + turned) % jnp.maximum(size, 1), length > 0


def _pick(weights: Array, noise: Array) -> Array:
    """int32[], one index in proportion to its weight, by `noise` uniform on [0, 1)."""
    sums = jnp.cumsum(weights)
    # Sums of a parallel scan may fall by a rounding: only a row with a weight is ever taken.
    reached = (sums > noise * sums[-1]) & (weights > 0)
    return jnp.where(reached.any(), jnp.argmax(reached), jnp.argmax(weights))
