"""Dense and convolution layers with the initialisation usual for PPO."""

from __future__ import annotations

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.networks.initializers import orthogonal
from jaxrl.networks.kernels.convolution import convolve
from jaxrl.networks.kernels.products import dense_product
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
    Parameters stay float32; `dtype` is for the computation.
    """
    initializer = orthogonal(scale)
    return nn.Dense(features, dtype=dtype, kernel_init=initializer, name=name, dot_general=dense_product)


class Conv(nn.Module):
    """2-D convolution over [..., height, width, channels] with any number of leading dimensions."""

    features: int
    kernel: int
    stride: int = 1
    padding: str = "VALID"
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        channels = x.shape[-1]
        shape = (self.kernel, self.kernel, channels, self.features)
        weight = self.param("kernel", orthogonal(math.sqrt(2)), shape).astype(self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,)).astype(self.dtype)
        leading = x.shape[:-3]
        x = x.astype(self.dtype).reshape(-1, *x.shape[-3:])
        y = convolve(x, weight, self.stride, self.padding) + bias[None, None, None]
        return y.reshape(*leading, *y.shape[1:])
