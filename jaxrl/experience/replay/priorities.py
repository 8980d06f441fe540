"""Priorities and importance weights of prioritised replay (Schaul et al. 2016); pure functions of arrays.

A row's leaf is its priority |TD| + 1e-5 to the power of alpha, which is in proportion to the probability of
sampling it. 0: never sampled.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array

EPSILON = 1e-5


def leaf_of(error: Array, alpha: float) -> Array:
    """float32[...], (|error| + 1e-5)^alpha of TD errors, never 0: a row that can be sampled remains one."""
    leaf: Array = (jnp.abs(error) + EPSILON) ** alpha
    return jnp.maximum(leaf, jnp.finfo(jnp.float32).tiny)


def leaf_of_new(largest: Array) -> Array:
    """float32[], the leaf of new rows: the largest in the buffer; 1, if it holds nothing."""
    return jnp.where(largest > 0, largest, 1.0)


def beta_at(draws: Array, start: float, planned: int) -> Array:
    """float32[], beta of the next draw: linear from `start` to 1 over the planned draws."""
    progress = jnp.minimum(draws.astype(jnp.float32) / planned, 1.0)
    return start + progress * (1.0 - start)


def importance(probability: Array, count: Array, beta: Array) -> Array:
    """float32[...], (N P)^-beta; 0 where the probability is 0.

    Divided by the largest of the batch they are the importance weights.

    Args:
      probability: float32[...], P of each row sampled.
      count: float32[], N, rows that may be sampled.
      beta: float32[].
    """
    drawn = probability > 0
    return jnp.where(drawn, jnp.where(drawn, probability * count, 1.0) ** -beta, 0.0)
