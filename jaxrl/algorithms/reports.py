"""The numbers that each update reports, for loops that store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.types import Array, Axis, PyTree

Reports = dict[str, Array]


def nonfinite(layers: Sequence[tuple[str, Array]], gradient: PyTree, axis: Axis) -> Reports:
    """`output/NNN/LAYER` and `gradient/PARAMETER` of `Algorithm.inspect`, bool[], equal on all devices.

    Args:
      layers: (name, output on this device), in the order of computation.
      gradient: of all devices, by parameter.
      axis: this device.
    """
    wrong = {f"output/{i:03}/{name}": ~jnp.isfinite(x).all() for i, (name, x) in enumerate(layers)}
    found = {name: x > 0 for name, x in axis.psum(jax.tree.map(jnp.int32, wrong)).items()}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found[f"gradient/{name}"] = ~jnp.isfinite(leaf).all()
    return found


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
