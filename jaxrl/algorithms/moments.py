"""Means and variances over the global batch, such as of advantages."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array, Axis


def global_moments(
    axis: Axis, arrays: tuple[Array, ...], valid_TB: Array | None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Means and variances of arrays [T, B] over the valid steps of ALL devices, in two passes."""
    valid_TB = jnp.ones(arrays[0].shape, bool) if valid_TB is None else valid_TB

    def total(x_TB: Array) -> Array:
        return jnp.where(valid_TB, x_TB, 0.0).sum()

    count, sums = axis.psum((valid_TB.sum(dtype=jnp.float32), [total(x) for x in arrays]))
    count = jnp.maximum(count, 1.0)
    means = [x / count for x in sums]
    squares = [total(jnp.square(x - mean)) for x, mean in zip(arrays, means, strict=True)]
    return tuple(means), tuple(x / count for x in axis.psum(squares))


def standardize(x_TB: Array, mean: Array, variance: Array) -> Array:
    """float32[T, B] of mean 0 and standard deviation 1."""
    return (x_TB - mean) / (jnp.sqrt(variance) + 1e-8)
