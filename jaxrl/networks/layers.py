"""Dense and convolution layers, initialised the way PPO wants them."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.networks.products import dense_product, matmul
from jaxrl.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def activation(name: str) -> Callable[[Array], Array]:
    if name not in ACTIVATIONS:
        raise ConfigError(f"`network.activation` (={name!r}) must be one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def dense(features: int, scale: float, dtype: jnp.dtype, name: str | None = None) -> nn.Dense:
    """A linear layer with orthogonal weights of gain `scale` and zero bias.

    Gains sqrt(2) (hidden), 0.01 (policy) and 1 (value): Huang et al. 2022, detail 2.
    Parameters are float32 whatever the compute `dtype`.
    """
    initializer = nn.initializers.orthogonal(scale)
    return nn.Dense(features, dtype=dtype, kernel_init=initializer, name=name, dot_general=dense_product)


_OUTSIDE_LOOPS = contextvars.ContextVar("outside_loops", default=False)


@contextlib.contextmanager
def outside_loops() -> Iterator[None]:
    """What is traced in the block runs by itself, forwards only, and not inside a `lax.scan`."""
    token = _OUTSIDE_LOOPS.set(True)
    try:
        yield
    finally:
        _OUTSIDE_LOOPS.reset(token)


class Conv(nn.Module):
    """2-D convolution over [..., height, width, channels] with any number of leading dimensions.

    Compiled for CPU it is patches times a matrix: XLA's convolution gradients are about ten times slower
    inside `lax.scan` there, while matrix products are not. Elsewhere, and `outside_loops()`, it is XLA's
    convolution.
    """

    features: int
    kernel: int
    stride: int = 1
    padding: str = "VALID"
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        channels = x.shape[-1]
        shape = (self.kernel, self.kernel, channels, self.features)
        weight = self.param("kernel", nn.initializers.orthogonal(math.sqrt(2)), shape).astype(self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,)).astype(self.dtype)
        leading = x.shape[:-3]
        x = x.astype(self.dtype).reshape(-1, *x.shape[-3:])
        stride, padding = self.stride, self.padding
        outside = _OUTSIDE_LOOPS.get()
        y = jax.lax.platform_dependent(
            x,
            weight,
            cpu=lambda x, weight: (_conv_native if outside else _conv_as_matmul)(x, weight, stride, padding),
            default=lambda x, weight: _conv_native(x, weight, stride, padding),
        )
        y = y + bias
        return y.reshape(*leading, *y.shape[1:])


def _conv_native(x: Array, weight: Array, stride: int, padding: str) -> Array:
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _conv_as_matmul(x: Array, weight: Array, stride: int, padding: str) -> Array:
    size, _, channels, features = weight.shape
    pads = jax.lax.padtype_to_pads(x.shape[1:3], (size, size), (stride, stride), padding)
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    height = (x.shape[1] - size) // stride + 1
    width = (x.shape[2] - size) // stride + 1
    patches = [
        x[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    columns = jnp.concatenate(patches, axis=-1)  # [N, height, width, size * size * channels]
    return matmul(columns, weight.reshape(size * size * channels, features)).astype(x.dtype)


def max_pool(x: Array, window: int, stride: int) -> Array:
    """SAME max pooling over the two dimensions before the last."""
    leading = x.shape[:-3]
    flat = x.reshape(-1, *x.shape[-3:])
    pooled = nn.max_pool(flat, (window, window), (stride, stride), "SAME")
    return pooled.reshape(*leading, *pooled.shape[1:])
