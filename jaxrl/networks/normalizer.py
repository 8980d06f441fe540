"""Running mean and variance of observations and returns, merged over batches and devices.

With several tasks leaves of statistics are [tasks, ...], and each task has those of its own rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import chex
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# Added to the variance, so that a feature that never changed divides by 1e-4 and not by 0.
_EPSILON = 1e-8
# Rows before a batch count for at most so many batches of its size: beside more, float32 would round it away.
_MOST_BATCHES = 2**20
_FEW_TASKS = 8


@flax.struct.dataclass
class RunningStats:
    """Count, mean and sum of squared deviations of every float leaf of a tree.

    Leaves that are not floating point (images as uint8, flags, indices) have no entry: the tuples hold
    one array per float leaf, in the order of `jax.tree.leaves`.

    Attributes:
      count: float32[], rows seen, at most those of 2^20 batches; older ones count ever less from there on.
      mean: float32 arrays, each of its leaf's shape without batch dimensions.
      mean_error: float32 arrays of the same shapes, what rounding took from `mean`. Without it the mean
        stands still once a batch moves it by less than float32's spacing, which after thousands of
        batches can be a good part of a standard deviation.
      m2: float32 arrays of the same shapes, sum of (x - mean)^2; the variance is m2 / count.
    """

    count: Array
    mean: tuple[Array, ...]
    mean_error: tuple[Array, ...]
    m2: tuple[Array, ...]


def init(example: PyTree, tasks: int = 0) -> RunningStats:
    """Statistics of nothing, for a tree of arrays like `example` (without batch dimensions)."""
    first = (tasks,) if tasks else ()
    zeros = tuple(jnp.zeros((*first, *x.shape), jnp.float32) for x in _float_leaves(example))
    return RunningStats(count=jnp.zeros(first, jnp.float32), mean=zeros, mean_error=zeros, m2=zeros)


def update(
    stats: RunningStats,
    batch: PyTree,
    mask: Array | None = None,
    psum: Callable[[Any], Any] = lambda tree: tree,
    task: Array | None = None,
) -> RunningStats:
    """Merges a batch into the statistics (Chan et al. 1983, "Algorithms for Computing the Sample Variance").

        n = n_a + n_b,    d = mean_b - mean_a
        mean = mean_a + d * n_b / n
        m2   = m2_a + m2_b + d^2 * n_a * n_b / n

    a being the statistics so far and b the batch of all devices together, whose moments are taken in two
    passes: float32 keeps the variance even where it is tiny beside the mean. The running mean is a
    compensated sum (Kahan 1965). Starting from `init`, one update gives the moments of the batch itself.

    Args:
      batch: a tree like the example's, with the same leading dimensions (e.g. [T, B]) on each leaf.
      mask: bool of the leading dimensions, True on rows that count; None counts all. Other rows may hold
        anything, NaN included.
      psum: sums a tree of arrays over the devices; the identity on one.
      task: int of the leading dimensions, if statistics are of several.

    Returns:
      The new statistics, the same on every device.
    """
    if task is not None:
        found = []
        for i in range(len(stats.count)):
            own = task == i if mask is None else (task == i) & mask
            found.append(update(jax.tree.map(lambda x, i=i: x[i], stats), batch, own, psum))
        return jax.tree.map(lambda *xs: jnp.stack(xs), *found)
    leaves = _float_leaves(batch)
    chex.assert_equal(len(leaves), len(stats.mean))
    if not leaves:
        return stats
    num_leading = leaves[0].ndim - stats.mean[0].ndim
    leading = leaves[0].shape[:num_leading]
    for x, old_mean in zip(leaves, stats.mean, strict=True):
        chex.assert_shape(x, (*leading, *old_mean.shape))
    if mask is not None:
        chex.assert_type(mask, bool)
        chex.assert_shape(mask, leading)

    batch_count, batch_mean, batch_m2 = _batch_moments(leaves, num_leading, mask, psum)
    before = jnp.where(batch_count > 0, jnp.minimum(stats.count, _MOST_BATCHES * batch_count), stats.count)
    forgotten = (stats.count - before) / jnp.maximum(stats.count, 1.0)
    count = before + batch_count
    share = batch_count / jnp.maximum(count, 1.0)
    delta = [b - a - e for a, e, b in zip(stats.mean, stats.mean_error, batch_mean, strict=True)]
    change = [e + d * share for e, d in zip(stats.mean_error, delta, strict=True)]
    mean = tuple(a + c for a, c in zip(stats.mean, change, strict=True))
    mean_error = tuple(c - (new - a) for a, c, new in zip(stats.mean, change, mean, strict=True))
    m2 = tuple(
        a + (b + jnp.square(d) * (before * share) - a * forgotten)
        for a, b, d in zip(stats.m2, batch_m2, delta, strict=True)
    )
    return RunningStats(count=count, mean=mean, mean_error=mean_error, m2=m2)


def std(stats: RunningStats) -> tuple[Array, ...]:
    """Population standard deviation of each float leaf; 1 as long as nothing was counted."""
    count = jnp.maximum(stats.count, 1.0)
    return tuple(jnp.where(stats.count > 0, jnp.sqrt(m2 / count + _EPSILON), 1.0) for m2 in stats.m2)


def freeze(mean: tuple[Array, ...], std: tuple[Array, ...]) -> RunningStats:
    """Statistics of one row with these moments: what `normalize` needs, and nothing that could learn on."""
    m2 = tuple(jnp.square(s) - _EPSILON for s in std)
    return RunningStats(jnp.ones((), jnp.float32), mean, tuple(jnp.zeros_like(m) for m in mean), m2)


def normalize(
    stats: RunningStats | None, tree: PyTree, clip: float = 0.0, task: Array | None = None
) -> PyTree:
    """(x - mean) / std of each float leaf in float32, clipped to [-clip, clip]; other leaves pass unchanged.

    Args:
      stats: statistics of such trees; with a count of 0, x is only clipped. None returns the tree as it is.
      tree: a tree like the example's, with any leading dimensions.
      clip: in standard deviations, static; 0 does not clip.
      task: int, of the leading dimensions of `tree`, if statistics are of several.
    """
    if stats is None:
        return tree
    leaves = _float_leaves(tree)
    if task is None:
        pairs = zip(leaves, stats.mean, std(stats), strict=True)
        moments = [tuple(jax.lax.broadcast_to_rank(y, x.ndim) for y in pair) for x, *pair in pairs]
    else:
        tables = zip(leaves, stats.mean, jax.vmap(std)(stats), strict=True)
        moments = [tuple(_of_task(table, task) for table in pair) for _, *pair in tables]
    left = iter(moments)

    def standardize(x: Array) -> Array:
        if not _is_float(x):
            return x
        mean, scale = next(left)
        return _clip((x.astype(jnp.float32) - mean) / scale, clip)

    return jax.tree.map(standardize, tree)


def scale_rewards(stats: RunningStats, reward: Array, clip: float = 0.0, task: Array | None = None) -> Array:
    """float32[...], rewards over the standard deviation of the discounted return (Engstrom et al. 2020).

    No mean is subtracted: that would change which policy is best.

    Args:
      stats: statistics of `advantage.discounted_returns`, from `init` of one float scalar.
      reward: float[...].
      clip: bound on the scaled reward's magnitude, static; 0 does not clip.
      task: int[...], if statistics are of several.
    """
    if task is not None:
        found, *others = [
            scale_rewards(jax.tree.map(lambda x, i=i: x[i], stats), reward, clip)
            for i in range(len(stats.count))
        ]
        for i, own in enumerate(others, 1):
            found = jnp.where(task == i, own, found)
        return found
    (scale,) = std(stats)
    chex.assert_rank(scale, 0)
    return _clip(reward.astype(jnp.float32) / scale, clip)


def _batch_moments(
    leaves: list[Array], num_leading: int, mask: Array | None, psum: Callable[[Any], Any]
) -> tuple[Array, list[Array], list[Array]]:
    """Count, means and m2s over the leading dimensions of all devices."""
    axes = tuple(range(num_leading))

    def total(x: Array) -> Array:
        if mask is None:
            return jnp.sum(x, axis=axes)
        valid = mask.reshape(mask.shape + (1,) * (x.ndim - num_leading))
        return jnp.sum(jnp.where(valid, x, 0.0), axis=axes)

    leaves = [x.astype(jnp.float32) for x in leaves]
    rows = math.prod(leaves[0].shape[:num_leading])
    local_count = jnp.float32(rows) if mask is None else jnp.sum(mask, dtype=jnp.float32)
    count, sums = psum((local_count, [total(x) for x in leaves]))
    divisor = jnp.maximum(count, 1.0)
    rough_mean = [s / divisor for s in sums]
    # The second pass also sums the deviations themselves: their mean is the rounding error of the first.
    deviation = [x - jax.lax.broadcast_to_rank(m, x.ndim) for x, m in zip(leaves, rough_mean, strict=True)]
    errors, squares = psum(([total(d) for d in deviation], [total(jnp.square(d)) for d in deviation]))
    mean = [m + e / divisor for m, e in zip(rough_mean, errors, strict=True)]
    m2 = [jnp.maximum(s - jnp.square(e) / divisor, 0.0) for s, e in zip(squares, errors, strict=True)]
    return count, mean, m2


def _of_task(table: Array, task: Array) -> Array:
    """[..., *rest], the rows of a table [tasks, *rest] at int[...]; without a gather for few tasks.

    XLA computes selections together with what follows, and a gather before it.
    """
    if len(table) > _FEW_TASKS:
        return table[task]
    which = task.reshape(*task.shape, *[1] * (table.ndim - 1))
    found = jnp.broadcast_to(table[0], (*task.shape, *table.shape[1:]))
    for i in range(1, len(table)):
        found = jnp.where(which == i, table[i], found)
    return found


def _clip(x: Array, limit: float) -> Array:
    return jnp.clip(x, -limit, limit) if limit > 0 else x


def _float_leaves(tree: PyTree) -> list[Array]:
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _is_float(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))
