"""Convolution and pooling as they are computed on CPU, against XLA's own."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels import convolution


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def value_and_gradients(function, direction, *arguments):
    def loss(*arguments):
        y = function(*arguments)
        return (y * direction).sum(), y

    which = tuple(range(len(arguments)))
    (_, y), gradients = jax.jit(jax.value_and_grad(loss, argnums=which, has_aux=True))(*arguments)
    return y, gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width", "channels", "features", "kernel", "stride", "padding"),
    [
        (10, 10, 4, 16, 3, 1, "VALID"),  # MinAtar: two outputs at a time
        (20, 22, 4, 32, 8, 4, "VALID"),  # the first layer of Nature
        (9, 10, 2, 6, 4, 2, "VALID"),  # the last row is left over
        (7, 9, 3, 16, 3, 1, "SAME"),  # the first layer of IMPALA: four outputs at a time, nine of them
        (8, 8, 16, 16, 3, 1, "SAME"),
        (6, 6, 32, 32, 3, 1, "SAME"),
        (9, 8, 2, 5, 3, 2, "SAME"),  # a kernel that the stride does not divide
        (5, 5, 1, 5, 1, 1, "VALID"),
        (8, 7, 2, 3, 1, 3, "VALID"),  # inputs that no window reaches
    ],
)
def test_convolution_equals_that_of_xla(height, width, channels, features, kernel, stride, padding):
    x = random(35, height, width, channels)  # two whole parts of the kernel's gradient, and a rest
    weight = random(kernel, kernel, channels, features, seed=1)

    def native(x, weight):
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(
            x, weight, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def ours(x, weight):
        pads = convolution._pads(x, kernel, stride, padding)
        return convolution._convolve_on_cpu(x, weight, stride, pads)

    direction = random(*jax.eval_shape(native, x, weight).shape, seed=2)
    y, gradients = value_and_gradients(ours, direction, x, weight)
    expected, expected_gradients = value_and_gradients(native, direction, x, weight)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("height", "width", "window", "stride"),
    [
        (7, 10, 3, 2),
        (10, 11, 4, 3),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in ((8, 8, 3, 2), (9, 8, 2, 2), (8, 9, 2, 3), (7, 7, 1, 4))
        ),
    ],
)
def test_pooling_equals_that_of_xla_also_among_equals(height, width, window, stride):
    # Few values: windows with several maxima, whose gradient goes to the first.
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 2, size=(2, height, width, 3)), jnp.float32)

    def native(x):
        return nn.max_pool(x, (window, window), (stride, stride), "SAME")

    direction = random(*jax.eval_shape(native, x).shape, seed=2)
    y, gradients = value_and_gradients(lambda x: convolution.max_pool(x, window, stride), direction, x)
    expected, expected_gradients = value_and_gradients(native, direction, x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_allclose(gradients[0], expected_gradients[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_max_pool_by_hand():
    x = jnp.arange(12.0).reshape(1, 1, 3, 4, 1)
    pooled = convolution.max_pool(x, window=3, stride=2)
    # SAME: 3 rows are padded by one on both sides, 4 columns by one at the end.
    np.testing.assert_array_equal(pooled[0, 0, :, :, 0], [[6, 7], [10, 11]])
