"""Matrix products with hand-written gradients, because those of autodiff are slow on CPU.

JAX transposes `x @ w` into a product that XLA:CPU computes from a transposed copy of the output's gradient,
two to thirty times slower than the same product written as a contraction over the rows of both
(measured in docs/performance.md). The values are the same. So it does `x @ y` of matrices behind the same
leading axes, three to five times slower than with a matrix that was transposed before (`times`, in float32
with float32's digits on accelerators too: acting, step by step, has no fewer).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrl.types import Array

# Up to this many columns, one matrix-vector product per column beats a matrix product on CPU.
_FEW_COLUMNS = 8
# With at least this ratio of inputs to columns and at most this many columns, a gradient is faster on CPU as
# a transposed product: that of weights from so many rows on, that of inputs below.
_MANY_TIMES = 2
_MOST_COLUMNS = 256
_MANY_ROWS = 64
# How far a kernel's values and gradients may be off, of the largest: bfloat16 over some layers or steps.
_ROUNDING = 0.05
Pair = tuple[Array, Array]


@jax.custom_vjp
def matmul(x: Array, weight: Array) -> Array:
    """`x @ weight`, float32[..., N], accumulated in float32, of [..., K] and [K, N] of one dtype."""
    return jnp.dot(x, weight, preferred_element_type=jnp.float32)


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return matmul(x, weight), (x, weight)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = saved
    gradient = gradient.astype(x.dtype)
    dx = _input_gradient(gradient, weight).astype(x.dtype)
    return dx, weight_gradient(x, gradient).astype(weight.dtype)


matmul.defvjp(_forward, _backward)


def _input_gradient(gradient: Array, weight: Array) -> Array:
    """float32[..., K], `gradient @ weight.T` of [..., N] and [K, N] of one dtype."""

    def plain(gradient: Array, weight: Array) -> Array:
        return jnp.dot(gradient, weight.T, preferred_element_type=jnp.float32)

    def by_columns(gradient: Array, weight: Array) -> Array:
        rows = gradient.reshape(-1, gradient.shape[-1])
        dims = (((1,), (1,)), ((), ()))
        columns = lax.dot_general(weight, rows, dims, preferred_element_type=jnp.float32)
        return lax.optimization_barrier(columns).T.reshape(*gradient.shape[:-1], len(weight))

    if math.prod(gradient.shape[:-1]) >= _MANY_ROWS or not _is_tall(*weight.shape):
        return plain(gradient, weight)
    return lax.platform_dependent(gradient, weight, cpu=by_columns, default=plain)


def _is_tall(inputs: int, columns: int) -> bool:
    """True of a matrix that a transposed product suits."""
    return _MANY_TIMES * columns <= inputs and _FEW_COLUMNS < columns <= _MOST_COLUMNS


def precision_of_products(name: str) -> contextlib.AbstractContextManager[Any]:
    """A context: the products that are traced in it, and their gradients if taken in it, have that precision.

    `name` is `network.matmul_precision`; `default` leaves it to `JAX_DEFAULT_MATMUL_PRECISION`.
    """
    return contextlib.nullcontext() if name == "default" else jax.default_matmul_precision(name)


def kernel_precision(dtype: Any, fastest: str) -> lax.Precision:
    """Precision of a kernel's products: kernels have two.

    Args:
      dtype: of the operands.
      fastest: what `DEFAULT` computes of float32 on the platform. The requested precision, by
        `network.matmul_precision` or `JAX_DEFAULT_MATMUL_PRECISION`, is rounded up to this or to float32.
    """
    asked = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    low = dtype != jnp.float32 or asked in (None, "default", "fastest", "bfloat16", fastest)
    return lax.Precision.DEFAULT if low else lax.Precision.HIGHEST


def weight_gradient(x: Array, gradient: Array) -> Array:
    """float32[K, N], the sum over rows of outer products of [..., K] and [..., N], of one dtype."""
    x = x.reshape(-1, x.shape[-1])
    gradient = gradient.reshape(-1, gradient.shape[-1])
    on_cpu = _product
    if gradient.shape[-1] <= _FEW_COLUMNS:
        on_cpu = _by_column
    elif len(x) >= _MANY_ROWS and _is_tall(x.shape[-1], gradient.shape[-1]):
        on_cpu = _transpose
    return lax.platform_dependent(x, gradient, cpu=on_cpu, default=_product)


def fault(found: Callable[[], Any], expected: Callable[[], Any], disagreement: str) -> str | None:
    """The fault of a kernel; None if its values and gradients are those expected up to rounding."""
    try:
        leaves = zip(jax.tree.leaves(found()), jax.tree.leaves(expected()), strict=True)
    except Exception as error:  # whatever a compiler or a driver raises
        return f"failed: {type(error).__name__}: {error}"
    # NaN is never near.
    near = all(np.max(np.abs(x - y)) <= _ROUNDING * np.max(np.abs(y)) for x, y in leaves)
    return None if near else disagreement


def _product(x: Array, gradient: Array) -> Array:
    rows = (((0,), (0,)), ((), ()))
    return lax.dot_general(x, gradient, rows, preferred_element_type=jnp.float32)


def _transpose(x: Array, gradient: Array) -> Array:
    # Without the barrier XLA rewrites this to `_product`.
    return lax.optimization_barrier(_product(gradient, x)).T


def _by_column(x: Array, gradient: Array) -> Array:
    columns = [jnp.dot(column, x, preferred_element_type=jnp.float32) for column in gradient.T]
    return jnp.stack(columns, axis=-1)


@jax.custom_vjp
def times(x: Array, y: Array) -> Array:
    """x y, of [..., I, J] and [..., J, K]."""
    return _batched_product("...ij,...jk->...ik", x, y)


@jax.custom_vjp
def times_transposed(x: Array, y: Array) -> Array:
    """x y^T, of [..., I, J] and [..., K, J]."""
    return _batched_product("...ij,...kj->...ik", x, y)


@jax.custom_vjp
def transposed_times(x: Array, y: Array) -> Array:
    """x^T y, of [..., I, J] and [..., I, K]."""
    return _batched_product("...ij,...jk->...ik", transposed(x), y)


def transposed(x: Array) -> Array:
    # Without the barrier XLA takes the transposition into the product.
    return lax.optimization_barrier(jnp.swapaxes(x, -1, -2))


def _batched_product(subscripts: str, x: Array, y: Array) -> Array:
    return jnp.einsum(subscripts, x, y, precision=lax.Precision.HIGHEST)


def _times_backward(saved: Pair, gradient: Array) -> Pair:
    x, y = saved
    return times_transposed(gradient, y), transposed_times(x, gradient)


def _times_transposed_backward(saved: Pair, gradient: Array) -> Pair:
    x, y = saved
    return times(gradient, y), transposed_times(gradient, x)


def _transposed_times_backward(saved: Pair, gradient: Array) -> Pair:
    x, y = saved
    return times_transposed(y, gradient), times(x, gradient)


times.defvjp(lambda x, y: (times(x, y), (x, y)), _times_backward)
times_transposed.defvjp(lambda x, y: (times_transposed(x, y), (x, y)), _times_transposed_backward)
transposed_times.defvjp(lambda x, y: (transposed_times(x, y), (x, y)), _transposed_times_backward)
