"""The numbers that each update reports, for loops that store them."""

from __future__ import annotations

from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp

from jaxrl.types import Array

Reports = dict[str, Array]


@flax.struct.dataclass
class PackedReports:
    """Numbers and flags as one vector: in a loop on a GPU, storing an array is a kernel.

    Attributes:
      values: float32[..., N]; a flag is 0 or 1. Loops put their own dimensions in front.
      names: of the N reports.
      flags: the names of those that are bool.
    """

    values: Array
    names: tuple[str, ...] = flax.struct.field(pytree_node=False)
    flags: frozenset[str] = flax.struct.field(pytree_node=False)

    @classmethod
    def of(cls, reports: Mapping[str, Array]) -> PackedReports:
        """Packs float32[] and bool[] of one update."""
        values = jnp.stack([x.astype(jnp.float32) for x in reports.values()])
        return cls(values, tuple(reports), frozenset(name for name, x in reports.items() if x.dtype == bool))

    def unpack(self) -> Reports:
        """float32 and bool [...] by name."""
        rows = {name: self.values[..., index] for index, name in enumerate(self.names)}
        return {name: x > 0 if name in self.flags else x for name, x in rows.items()}
