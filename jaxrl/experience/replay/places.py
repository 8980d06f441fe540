"""The items of a ring that may be sampled."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

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
