"""What the delta rule writes in a block of steps: the solution of a triangular system.

With u_t = b_t (v_t - a_t S_{t-1} k_t), which is what step t writes at its key, and g_t the product of decays
since the state S_0 before the block (Yang et al. 2024, "Gated Delta Networks", section 3.3),

    u_t + b_t sum_{j < t} (g_t / g_j) (k_t . k_j) u_j = b_t (v_t - g_t S_0 k_t).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrl.types import Array


def corrections(among: Array, errors: Array) -> Array:
    """u [..., steps, V].

    Args:
      among: [..., steps, steps], b_t (g_t / g_j) (k_t . k_j); only j < t counts.
      errors: [..., steps, V], the right-hand side.
    """
    before = np.tri(among.shape[-1], k=-1, dtype=bool)
    lower = jnp.where(jnp.broadcast_to(before, among.shape), among, 0.0)
    return product("tj,jv->tv", _inverse_of_unit_lower(lower), errors)


@jax.custom_vjp
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
            between = product("ij,jk->ik", product("ij,jk->ik", inverse, between), inverse)
        inverse = inverse - between
        size *= 2
    return inverse


def _forward(lower: Array) -> tuple[Array, Array]:
    inverse = _inverse_of_unit_lower(lower)
    return inverse, inverse


def _backward(inverse: Array, gradient: Array) -> tuple[Array]:
    """d (I + lower)^-1 = -(I + lower)^-1 d lower (I + lower)^-1."""
    return (-product("ik,jk->ij", product("ki,kj->ij", inverse, gradient), inverse),)


_inverse_of_unit_lower.defvjp(_forward, _backward)


def product(subscripts: str, x: Array, y: Array) -> Array:
    """Of matrices behind the same leading axes, in float32: acting, step by step, has no fewer digits."""
    one, rest = subscripts.split(",")
    other, result = rest.split("->")
    return jnp.einsum(f"...{one},...{other}->...{result}", x, y, precision=lax.Precision.HIGHEST)
