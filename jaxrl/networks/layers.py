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
from jaxrl.networks.kernels.products import matmul
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


class Dense(nn.Module):
    """A linear layer with orthogonal weights of gain `gain` and zero bias.

    Gains sqrt(2) (hidden), 0.01 (policy) and 1 (value): Huang et al. 2022, detail 2.
    Parameters stay float32; `dtype` is that of the product's operands and of the result. The bias is added in
    float32 before the result is rounded: its gradient, a sum over all rows, is then one in float32.
    """

    features: int
    gain: float
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        weight = self.param("kernel", orthogonal(self.gain), (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        y = matmul(x.astype(self.dtype), weight.astype(self.dtype))
        return (y + jax.lax.broadcast_to_rank(bias, y.ndim)).astype(self.dtype)


class Conv(nn.Module):
    """2-D convolution over [..., height, width, channels] with any number of leading dimensions.

    The bias is added in float32, as in `Dense`.
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
        weight = self.param("kernel", orthogonal(math.sqrt(2)), shape).astype(self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        leading = x.shape[:-3]
        x = x.astype(self.dtype).reshape(-1, *x.shape[-3:])
        y = (convolve(x, weight, self.stride, self.padding) + bias[None, None, None]).astype(self.dtype)
        return y.reshape(*leading, *y.shape[1:])
