"""The numbers that each update reports, for loops that store them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.optimizer import layer_norms
from jaxrl.metrics.reduction import Mean, Metrics
from jaxrl.types import Array, Axis, PyTree

Reports = dict[str, Array]


def nonfinite(layers: Sequence[tuple[str, Array]], gradient: PyTree, axis: Axis) -> Reports:
    """`output/NNN/LAYER` and `gradient/PARAMETER` of `Algorithm.inspect`, bool[], equal on all devices.

    Layers have outputs on this device, in the order of computation; the gradient is of all devices.
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


@flax.struct.dataclass
class Epochs:
    """The result of all updates on a batch.

    Attributes:
      learner: after them.
      gradient: tree, of the last update that was made; None unless `log.layers` reports its norms.
      reports: by name, [epochs, minibatches], the reports of each update; `made` and `skipped` say which
        count.
      per_row: the tree of the loss [T, B, ...] in the last epoch, or None.
    """

    learner: Any
    gradient: PyTree
    reports: Reports
    per_row: PyTree

    @classmethod
    def none(cls, make: Callable[[], Epochs], learner: Any) -> Epochs:
        """No updates, in the shapes of those that `make` makes: `learner` stays as it is."""
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))
        return dataclasses.replace(nothing, learner=learner)

    def averages(self, names: Sequence[str]) -> Metrics:
        """Over the updates that were made; an iteration counts by how many of its updates these were."""
        made = self.reports["made"]
        total = jnp.maximum(made.sum(), 1).astype(jnp.float32)
        share = made.sum().astype(jnp.float32) / made.size

        def average(x: Array) -> Array:
            return jnp.where(made, x, 0.0).sum() / total

        return {name: Mean(average(self.reports[name]) * share, share) for name in names}

    def layer_norms(self) -> Metrics:
        """`parameters.layer_norms` of the gradient, which counts if an update was made."""
        made = self.reports["made"].any().astype(jnp.float32)
        return {name: Mean(x * made, made) for name, x in layer_norms(self.gradient).items()}
