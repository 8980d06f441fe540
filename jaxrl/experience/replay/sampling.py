"""Sampling without replacement: what may be sampled of a ring, how, and random numbers for it.

Weighted samples have the distribution of sampling one row after the other, each in proportion to its weight
among the rows that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.types import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@dataclass(frozen=True)
class Places:
    """The items of each environment, rows or sequences, that may be sampled: the oldest ones of a ring.

    Attributes:
      envs: environments of this device, B.
      size: items of each that the ring can hold.
      oldest: int32[], where the oldest lies.
      complete: int32[], items of each, from the oldest on, that may be sampled.
    """

    envs: int
    size: int
    oldest: Array
    complete: Array

    def allow(self, item: Array) -> Array:
        """bool[...], True if items may be sampled; what lies beyond the ring may not."""
        age = item - self.oldest % self.size
        age = jnp.where(age < 0, age + self.size, age)  # faster than a remainder
        return (age < self.complete) & (item < self.size)

    def suffice(self, count: Array, learning_starts: int) -> Array:
        """bool[], True if of `count` rows enough are kept to learn, and one item can be sampled."""
        return (count >= learning_starts) & (self.complete > 0)


@dataclass(frozen=True)
class Groups:
    """Groups of neighbouring environments, as many whatever the number of devices.

    Attributes:
      total: on all devices.
      here: on this one.
      first: int32[], which of all groups is the first here.
      each: rows sampled from each of them.
    """

    total: int
    here: int
    first: Array | int
    each: int

    @classmethod
    def of(cls, plan: ReplayPlan) -> Self:
        here = plan.groups // plan.axis.size
        return cls(plan.groups, here, plan.axis.index() * here, plan.batch_size // plan.groups)

    def keys(self, key: Array) -> Array:
        """[here] keys of the groups here, the same however many devices there are; `key` is equal on all."""
        index = self.first + jnp.arange(self.here)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)

    def take(self, x: Array, axis: int = 0) -> Array:
        """The part of the groups here, of an array with an axis of all groups."""
        return jax.lax.dynamic_slice_in_dim(x, self.first, self.here, axis)


def by_race(key: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """(int32[count] different indices in proportion to their weights, bool[count], True if there was one).

    By the largest of log(weight) + Gumbel noise (Efraimidis and Spirakis 2006). The weights are float32[N],
    at least 0, and N is at least `count`.
    """
    best, index = jax.lax.top_k(_scores(key, weights), count)
    return index.astype(jnp.int32), best > -jnp.inf


def by_race_in_blocks(
    key: Array, weights_of: Callable[[Array], Array], size: int, width: int, count: int
) -> tuple[Array, Array]:
    """`by_race` of one block after the other, so that no array is as long as all weights.

    Args:
      weights_of: float32[width], at least 0, of a block by its first index, int32[].
      size: N, all weights.
      width: of a block, at most N.
    """

    def turn(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        # The last block begins earlier where it would be shorter: what was raced before is left out.
        start = jnp.minimum(i * width, size - width)
        index = start + jnp.arange(width)
        weights = jnp.where(index >= i * width, weights_of(start), 0.0)
        scores = jnp.concatenate([best[0], _scores(jax.random.fold_in(key, i), weights)])
        score, place = jax.lax.top_k(scores, count)
        return score, jnp.concatenate([best[1], index])[place]

    nothing = jnp.full(count, -jnp.inf), jnp.zeros(count, jnp.int32)
    best, index = jax.lax.fori_loop(0, -(-size // width), turn, nothing)
    return index, best > -jnp.inf


def _scores(key: Array, weights: Array) -> Array:
    # log(weight) + Gumbel noise. Of 2^23 uniform numbers, as is usual, the largest would often be equal.
    noise = jax.random.gumbel(key, weights.shape, jnp.float32, mode="high")
    drawn = weights > 0
    return jnp.where(drawn, jnp.log(jnp.where(drawn, weights, 1.0)) + noise, -jnp.inf)


def draw_uniform(key: Array, size: Array, count: int, groups: int) -> tuple[Array, Array]:
    """(int32[groups, count] different indices below `size`, bool[count], True if there was one to sample).

    One index from each of `count` equal parts of a circle that is turned at random, so that every index has
    the same probability (except for a relative 2^-32 `size`), without work for each row.

    Args:
      key: of this call; one for all groups, since making a key takes as long as sampling four numbers.
      size: int32[], at most 2^31 / `count`.
      count: rows to sample from each group.
      groups: sampled alike and independently.
    """
    part = jnp.arange(count + 1)
    # As `part * size // count`, which could be too large for an int32.
    edge = part * (size // count) + part * (size % count) // count
    length = edge[1:] - edge[:-1]
    limit = jnp.maximum(jnp.append(length, size), 1)
    number = bits(key, (groups, count + 1)) % limit.astype(jnp.uint32)[None]
    within, turned = jnp.split(number.astype(jnp.int32), [count], axis=1)
    return (edge[None, :-1] + within + turned) % limit[-1], length > 0


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """uint32[*shape], `jax.random.bits`."""
    words = jax.random.key_data(key)
    if words.shape != (2,) or not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return jax.random.bits(key, shape, jnp.uint32)
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    first, second = threefry(words[0], words[1], jnp.zeros_like(count), count)
    return first ^ second


def uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """float32[*shape] on [0, 1), `jax.random.uniform` bit for bit, as one kernel.

    XLA for CPU gets the rounds of Threefry as a loop from JAX, to compile quickly: some sixty kernels, which
    take longer than the rest of a small sample.
    """
    mantissa = bits(key, shape) >> 9
    one_and_more = jax.lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800000), jnp.float32)
    return one_and_more - 1.0


def threefry(first_key: Array, second_key: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Two words of random bits, uint32[...] each, of the key (uint32[] each) and the counter (x, y) uint32[...].
    """
    keys = (first_key, second_key, first_key ^ second_key ^ jnp.uint32(_PARITY))
    x = x + keys[0]
    y = y + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << rotation) | (y >> (32 - rotation)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y
