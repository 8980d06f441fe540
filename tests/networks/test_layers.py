"""Layers against XLA's own, and how they are initialised."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.networks import layers
from jaxrl.networks.layers import orthogonal
from tests import rounding


def svd(weight):
    return np.linalg.svd(np.asarray(weight), compute_uv=False)


def test_convolution_takes_any_leading_dimensions():
    conv = layers.Conv(3, 3)
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 6, 2)).astype(np.float32)
    y, params = jax.jit(conv.init_with_output)(jax.random.key(0), x)
    assert y.shape == (2, 3, 4, 4, 3)
    np.testing.assert_allclose(
        y[1, 2], jax.jit(conv.apply)(params, x[1, 2]), atol=rounding.of_sums(3 * 3 * 2)
    )


@pytest.mark.parametrize("gain", [np.sqrt(2), 0.01, 1.0])
def test_dense_is_orthogonal(gain):
    # correctness 17.
    params = jax.jit(layers.Dense(5, gain, jnp.bfloat16).init)(jax.random.key(0), jnp.ones(8))["params"]
    np.testing.assert_allclose(svd(params["kernel"]), gain, rtol=1e-5)
    np.testing.assert_array_equal(params["bias"], 0.0)
    # correctness 22: parameters stay float32 whatever computes with them.
    assert params["kernel"].dtype == params["bias"].dtype == jnp.float32


def test_convolution_is_orthogonal():
    # correctness 17.
    params = jax.jit(layers.Conv(5, 3).init)(jax.random.key(0), jnp.ones((6, 6, 2)))["params"]
    np.testing.assert_allclose(svd(params["kernel"].reshape(-1, 5)), np.sqrt(2), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.Dense(3, 1.0, jnp.bfloat16), (2048, 2)),
        (layers.Dense(3, 1.0, jnp.bfloat16), (16, 1024, 2)),
        (layers.Conv(3, 3, dtype=jnp.bfloat16), (256, 10, 10, 2)),
        (layers.Conv(16, 4, 2, dtype=jnp.bfloat16), (1024, 10, 10, 2)),
    ],
)
def test_bias_gradients_are_sums_in_float32(layer, shape):
    # correctness 28: a sum in bfloat16 stands still at 256 times its terms.
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=shape), jnp.float32)
    params = jax.jit(layer.init)(jax.random.key(0), x)
    y = jax.eval_shape(layer.apply, params, x)
    assert y.dtype == jnp.bfloat16
    # Of two values that bfloat16 holds exactly: what is lost is lost in the sum.
    direction = rng.choice([0.5, 1.0], size=y.shape)
    loss = lambda params: (layer.apply(params, x).astype(jnp.float32) * jnp.float32(direction)).sum()  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(params)["params"]["bias"]
    np.testing.assert_allclose(gradient, direction.reshape(-1, y.shape[-1]).sum(axis=0), rtol=1e-5)


def test_a_bias_is_added_before_the_result_is_rounded():
    # Numbers of bfloat16 above 1 are 2^-7 apart: 1 + 2^-9 alone is rounded to 1, and 1 + 2^-8 to 1 again.
    params = {"params": {"kernel": np.ones((2, 1), np.float32), "bias": np.full(1, 2.0**-8, np.float32)}}
    y = jax.jit(layers.Dense(1, 1.0, jnp.bfloat16).apply)(params, np.array([1.0, 2.0**-9], np.float32))
    np.testing.assert_array_equal(y.astype(jnp.float32), [1 + 2.0**-7])


def test_unknown_activation():
    with pytest.raises(ConfigError, match=r"`network.activation` \(='tahn'\).*tanh"):
        layers.activation("tahn")


def test_orthogonal_weights_under_vmap_are_those_of_each_key() -> None:
    # Seeds are vmapped: a batch of QR decompositions can block the threads that XLA runs programs on.
    init = orthogonal(math.sqrt(2))
    keys = jax.random.split(jax.random.key(0), 3)
    draw = lambda key: init(key, (16, 8))  # noqa: E731
    together, alone = np.asarray(jax.jit(jax.vmap(draw))(keys)), jax.jit(draw)
    for key, weights in zip(keys, together, strict=True):
        np.testing.assert_allclose(weights, alone(key), atol=rounding.of_sums(16 * 8))
        np.testing.assert_allclose(weights.T @ weights, 2 * np.eye(8), atol=1e-5)
