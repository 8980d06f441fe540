"""Running statistics of several tasks, each of its own rows; see `normalizer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.networks import normalizer
from jaxrl.networks.normalizer import RunningStats
from jaxrl.types import Array, PyTree

_FEW_TASKS = 8


def init(example: PyTree, count: int) -> RunningStats:
    """Statistics of nothing, leaves [count, ...], for a tree of arrays like `example`."""
    one = normalizer.init(example)
    return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), one)


def update(
    stats: RunningStats,
    batch: PyTree,
    task: Array,
    mask: Array | None = None,
    psum: Callable[[Any], Any] = lambda tree: tree,
) -> RunningStats:
    """Merges the rows of each task into its statistics, as `normalizer.update`.

    Args:
      stats: leaves [count, ...].
      batch: a tree like the example's, with the same leading dimensions on each leaf.
      task: int of the leading dimensions.
      mask: bool of the leading dimensions, True on rows that count; None counts all.
      psum: sums over the devices.
    """

    def one(i: int) -> RunningStats:
        own = task == i if mask is None else (task == i) & mask
        return normalizer.update(jax.tree.map(lambda x: x[i], stats), batch, own, psum)

    updated = [one(i) for i in range(len(stats.count))]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *updated)


def normalize(stats: RunningStats | None, tree: PyTree, task: Array, clip: float = 0.0) -> PyTree:
    """`normalizer.normalize` of each row with the statistics of its task.

    Args:
      stats: leaves [count, ...]; None returns the tree as it is.
      tree: a tree like the example's, with the leading dimensions of `task`.
      task: int[...].
      clip: in standard deviations, static; 0 does not clip.
    """
    if stats is None:
        return tree
    moments = [
        (_of_task(mean, task), _of_task(scale, task))
        for mean, scale in zip(stats.mean, jax.vmap(normalizer.std)(stats), strict=True)
    ]
    return normalizer.standardize(tree, moments, clip)


def scale_rewards(stats: RunningStats, reward: Array, task: Array, clip: float = 0.0) -> Array:
    """`normalizer.scale_rewards` of each reward [...] with the statistics of its task, int[...]."""
    scaled = [
        normalizer.scale_rewards(jax.tree.map(lambda x, i=i: x[i], stats), reward, clip)
        for i in range(len(stats.count))
    ]
    found = scaled[0]
    for i, own in enumerate(scaled[1:], start=1):
        found = jnp.where(task == i, own, found)
    return found


def _of_task(table: Array, task: Array) -> Array:
    """[..., *rest], the rows of a table [count, *rest] at int[...]; without a gather for few tasks.

    XLA computes selections together with what follows, and a gather before it.
    """
    if len(table) > _FEW_TASKS:
        return table[task]
    which = task.reshape(*task.shape, *[1] * (table.ndim - 1))
    found = jnp.broadcast_to(table[0], (*task.shape, *table.shape[1:]))
    for i in range(1, len(table)):
        found = jnp.where(which == i, table[i], found)
    return found
