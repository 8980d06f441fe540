"""Groups of environments that each sample an equal share of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.types import Array


@dataclass(frozen=True)
class Groups:
    """Groups of neighbouring environments, as many whatever the number of devices.

    Attributes:
      total: on all devices.
      here: on this one.
      first: int32[], which of all groups is the first here.
      each: rows that each of them draws.
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
        keys: Array = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        return keys

    def take(self, x: Array) -> Array:
        """[here, ...], what belongs to the groups here of an array [total, ...]."""
        return jax.lax.dynamic_slice_in_dim(x, self.first, self.here)
