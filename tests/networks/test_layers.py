"""Layers against XLA's own, and how they are initialised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.networks import layers


def svd(weight):
    return np.linalg.svd(np.asarray(weight), compute_uv=False)


@pytest.mark.parametrize(
    ("height", "width", "channels", "kernel", "stride", "padding"),
    [
        (10, 10, 4, 3, 1, "VALID"),  # MinAtar
        (20, 22, 3, 8, 4, "VALID"),  # the first Nature layer
        (9, 10, 2, 4, 2, "VALID"),  # the last rows are left over
        (7, 8, 3, 3, 1, "SAME"),  # IMPALA
        (9, 8, 2, 3, 2, "SAME"),
        (5, 5, 1, 1, 1, "VALID"),
    ],
)
def test_convolution_as_matmul_equals_that_of_xla(height, width, channels, kernel, stride, padding):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, height, width, channels)), jnp.float32)
    weight = jnp.asarray(rng.normal(size=(kernel, kernel, channels, 5)), jnp.float32)
    out = jax.eval_shape(lambda: layers._conv_native(x, weight, stride, padding))
    direction = jnp.asarray(rng.normal(size=out.shape), jnp.float32)

    def run(convolve):
        def loss(x, weight):
            y = convolve(x, weight, stride, padding)
            return (y * direction).sum(), y

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(x, weight)

    (_, y), gradients = run(layers._conv_as_matmul)
    (_, expected), expected_gradients = run(layers._conv_native)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_convolution_takes_any_leading_dimensions():
    conv = layers.Conv(3, 3)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 6, 6, 2)), jnp.float32)
    params = conv.init(jax.random.key(0), x)
    y = conv.apply(params, x)
    assert y.shape == (2, 3, 4, 4, 3)
    np.testing.assert_allclose(y[1, 2], conv.apply(params, x[1, 2]), atol=1e-6)


def test_max_pool_by_hand():
    x = jnp.arange(12.0).reshape(1, 1, 3, 4, 1)
    pooled = layers.max_pool(x, window=3, stride=2)
    # SAME: 3 rows are padded by one on both sides, 4 columns by one at the end.
    np.testing.assert_array_equal(pooled[0, 0, :, :, 0], [[6, 7], [10, 11]])


@pytest.mark.parametrize("gain", [np.sqrt(2), 0.01, 1.0])
def test_dense_is_orthogonal(gain):
    # correctness 17.
    params = layers.dense(5, gain, jnp.bfloat16).init(jax.random.key(0), jnp.ones(8))["params"]
    np.testing.assert_allclose(svd(params["kernel"]), gain, rtol=1e-5)
    np.testing.assert_array_equal(params["bias"], 0.0)
    # correctness 22: parameters stay float32 whatever computes with them.
    assert params["kernel"].dtype == params["bias"].dtype == jnp.float32


def test_convolution_is_orthogonal():
    # correctness 17.
    params = layers.Conv(5, 3).init(jax.random.key(0), jnp.ones((6, 6, 2)))["params"]
    np.testing.assert_allclose(svd(params["kernel"].reshape(-1, 5)), np.sqrt(2), rtol=1e-5)


def test_unknown_activation():
    with pytest.raises(ConfigError, match=r"`network.activation` \(='tahn'\).*tanh"):
        layers.activation("tahn")
