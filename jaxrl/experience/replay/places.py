"""The items of a ring that may be sampled, and the groups of environments that give equal shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.types import Array


def wrap(item: Array, size: int) -> Array:
    """uint32[...], where items of a ring lie that may be up to its size before its start, or beyond its end.

    Without a sign: XLA for CPU would correct the remainder, and then the index, anew for every number that is
    taken from a row.
    """
    return jax.lax.rem((item + size).astype(jnp.uint32), jnp.full(item.shape, size, jnp.uint32))


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
        """The groups of a plan."""
        here = plan.groups // plan.axis.size
        return cls(plan.groups, here, plan.axis.index() * here, plan.batch_size // plan.groups)

    def keys(self, key: Array) -> Array:
        """[here] keys of the groups here, the same however many devices there are; `key` is equal on all."""
        index = self.first + jnp.arange(self.here)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)

    def take(self, x: Array) -> Array:
        """[here, ...], what belongs to the groups here of an array [total, ...]."""
        return jax.lax.dynamic_slice_in_dim(x, self.first, self.here)
