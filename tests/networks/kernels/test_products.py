"""Matrix products with written-out gradients against autodiff of the plain product."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels.products import matmul

# Few columns, many times as many inputs as columns, the same with few rows or many columns, and neither.
SHAPES = [(7, 5, 3), (33, 40, 16), (9, 40, 16), (9, 700, 300), (12, 20, 15)]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "inputs", "columns"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.02)])
def test_gradients_are_those_of_autodiff(rows, inputs, columns, dtype, tolerance):
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, rows, inputs), dtype)
    weight = jax.random.normal(keys[1], (inputs, columns), dtype)
    scale = jax.random.normal(keys[2], (2, rows, columns))
    loss = lambda product: lambda x, w: jnp.sum(product(x, w) * scale)  # noqa: E731
    got = jax.jit(jax.grad(loss(matmul), argnums=(0, 1)))(x, weight)
    wide = (x.astype(jnp.float32), weight.astype(jnp.float32))
    expected = jax.grad(loss(jnp.matmul), argnums=(0, 1))(*wide)
    for mine, plain in zip(got, expected, strict=True):
        assert mine.dtype == dtype
        error = np.abs(np.asarray(mine, np.float32) - plain).max()
        assert error <= tolerance * np.abs(plain).max()
