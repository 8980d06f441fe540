"""Which items of a ring may be drawn."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxrl.types import Array


@dataclass(frozen=True)
class Places:
    """The items of each environment, rows or sequences, that may be drawn: the oldest ones of a ring.

    Attributes:
      envs: environments of this device, B.
      size: items of each that the ring can hold.
      oldest: int32[], where the oldest lies.
      complete: int32[], items of each, from the oldest on, that may be drawn.
    """

    envs: int
    size: int
    oldest: Array
    complete: Array

    def allow(self, item: Array) -> Array:
        """bool[...], whether items may be drawn; what lies beyond the ring may not."""
        age = item - self.oldest % self.size
        age = jnp.where(age < 0, age + self.size, age)  # faster than a remainder
        return (age < self.complete) & (item < self.size)
