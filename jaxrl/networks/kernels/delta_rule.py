"""The writes of the delta rule in a block of steps: the solution of a triangular system.

With u_t = b_t (v_t - a_t S_{t-1} k_t), which is what step t writes at its key, and g_t the product of decays
since the state S_0 before the block (Yang et al. 2024, "Gated Delta Networks", section 3.3),

    u_t + b_t sum_{j < t} (g_t / g_j) (k_t . k_j) u_j = b_t (v_t - g_t S_0 k_t).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.kernels.batched_products import times, times_transposed
from jaxrl.types import Array


@jax.custom_vjp
def corrections(among: Array, errors: Array) -> Array:
    """u [..., steps, V].

    Args:
      among: [..., steps, steps], b_t (g_t / g_j) (k_t . k_j); only j < t counts. A power of 2 of steps.
      errors: [..., steps, V], the right-hand side.
    """
    return _forward(among, errors)[0]


def _forward(among: Array, errors: Array) -> tuple[Array, tuple[Array, Array]]:
    inverse = _inverse_of_unit_lower(_lower(among))
    u = times(inverse, errors)
    return u, (inverse, u)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """The transposed system: d u = (I + lower)^-1 (d errors - d lower u)."""
    inverse, u = saved
    # The zeros are there already; selecting keeps XLA from a contraction over rows, which is slow on CPU.
    upper = jnp.broadcast_to(np.tri(inverse.shape[-1], dtype=bool).T, inverse.shape)
    of_errors = times(jnp.where(upper, jnp.swapaxes(inverse, -1, -2), 0.0), gradient)
    return -_lower(times_transposed(of_errors, u)), of_errors


corrections.defvjp(_forward, _backward)


def _lower(x: Array) -> Array:
    """Zeros in place of the diagonal and what is above."""
    return jnp.where(jnp.broadcast_to(np.tri(x.shape[-1], k=-1, dtype=bool), x.shape), x, 0.0)


def _inverse_of_unit_lower(lower: Array) -> Array:
    """(I + lower)^-1 of strictly lower triangular matrices [..., steps, steps], a power of 2.

    By the inverses of blocks on the diagonal, which double in size: as exact as substitution, step by step.
    """
    steps = lower.shape[-1]
    size, inverse = 1, jnp.broadcast_to(jnp.eye(steps), lower.shape)
    row, column = np.indices((steps, steps))
    while size < steps:
        # The lower left quarter of each block of twice the size.
        quarter = (row // size == column // size + 1) & (row // (2 * size) == column // (2 * size))
        between = jnp.where(jnp.broadcast_to(quarter, lower.shape), lower, 0.0)
        if size > 1:
            between = times(times(inverse, between), inverse)
        inverse = inverse - between
        size *= 2
    return inverse
