"""Value rescaling and the priorities of sequences; pure functions of arrays."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array

_EPSILON = 1e-3


def rescale(x: Array) -> Array:
    """float32[...], h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, eps = 1e-3 (Pohlen et al. 2018)."""
    y = jnp.abs(x)
    # sqrt(y + 1) - 1, without the difference, which would be rounded to nothing for small rewards.
    return jnp.sign(x) * y / (jnp.sqrt(y + 1.0) + 1.0) + _EPSILON * x


def inverse_rescale(x: Array) -> Array:
    """float32[...], the inverse of `rescale`.

    u = sqrt(|h^-1(x)| + 1) - 1 is the root of eps u^2 + (1 + 2 eps) u = |x|, here without a difference of
    nearly equal numbers, which in float32 would leave three digits.
    """
    y = jnp.abs(x)
    linear = 1.0 + 2.0 * _EPSILON
    u = 2.0 * y / (linear + jnp.sqrt(linear**2 + 4.0 * _EPSILON * y))
    return jnp.sign(x) * u * (u + 2.0)


def sequence_error(error: Array, usable: Array, eta: float) -> Array:
    """float32[N], eta max |error| + (1 - eta) mean |error| over the steps of each sequence that count.

    Args:
      error: float32[L, N], TD errors.
      usable: bool[L, N].
      eta: 0.9 in Kapturowski et al. 2019, equation 1.
    """
    found = jnp.where(usable, jnp.abs(error), 0.0)
    mean = found.sum(axis=0) / jnp.maximum(usable.sum(axis=0), 1).astype(jnp.float32)
    return eta * found.max(axis=0) + (1.0 - eta) * mean
