"""Dense and convolution layers with the initialisation usual for PPO, and layer normalisation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.custom_batching
import jax.numpy as jnp

from jaxrl.config import ConfigError
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
EPSILON = 1e-6


def orthogonal(scale: float = 1.0) -> nn.initializers.Initializer:
    """Orthogonal weights of gain `scale` (Saxe et al. 2014), one matrix after the other under vmap.

    jaxlib divides a batch of QR decompositions among the threads that run programs on CPU, and waits for
    them there: two such batches at once, as where seeds are vmapped, can wait for each other for ever.
    """
    initializer = nn.initializers.orthogonal(scale)

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        return jax.custom_batching.sequential_vmap(lambda key: initializer(key, shape, dtype))(key)

    return init


def per_block_orthogonal(blocks: int) -> nn.initializers.Initializer:
    """Makes each gate's block of columns orthogonal, as if the gates were separate layers."""
    block = orthogonal()

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        rows, columns = shape
        keys = jax.random.split(key, blocks)
        return jnp.concatenate([block(k, (rows, columns // blocks), dtype) for k in keys], axis=-1)

    return init


def activation(name: str) -> Callable[[Array], Array]:
    if name not in ACTIVATIONS:
        raise ConfigError(f"`network.activation` (={name!r}) must be one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def product(
    module: nn.Module, name: str, x: Array, init: Any, size: int, dtype: jnp.dtype = jnp.float32
) -> Array:
    """float32[..., size], `x` times the parameter `name`, both in `dtype`."""
    weight = module.param(name, init, (x.shape[-1], size))
    return matmul(x.astype(dtype), weight.astype(dtype))


def linear(module: nn.Module, x: Array, features: int, gain: float, dtype: jnp.dtype = jnp.float32) -> Array:
    """A linear layer with the parameters of `module`; see `Dense`."""
    y = product(module, "kernel", x, orthogonal(gain), features, dtype)
    bias = module.param("bias", nn.initializers.zeros, (features,))
    return (y + jax.lax.broadcast_to_rank(bias, y.ndim)).astype(dtype)


def residual_stream(module: nn.Module, x: Array, size: int, dtype: jnp.dtype = jnp.float32) -> Array:
    """float32[L, N, size], to which layers are added: `x`, or `embedding` of it if its size differs."""
    if x.shape[-1] == size:
        return x.astype(jnp.float32)
    y = product(module, "embedding", x, orthogonal(), size, dtype)
    return y + module.param("embedding_bias", nn.initializers.zeros, (size,))[None, None]


def weights_of(module: nn.Module) -> str:
    """The beginning of the names of a bound module's arrays."""
    return ".".join(module.path)


class Dense(nn.Module):
    """A linear layer with orthogonal weights of gain `gain` and zero bias.

    Gains sqrt(2) (hidden), `network.policy_gain` (policy) and 1 (value): Huang et al. 2022, detail 2.
    Parameters stay float32; `dtype` is the type of the product's operands and of the result. The bias is
    added in float32 before the result is rounded: its gradient, a sum over all rows, is then one in float32.
    """

    features: int
    gain: float
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return linear(self, x, self.features, self.gain, self.dtype)

    def describe(self) -> list[dict[str, Any]]:
        return [{"op": "dense", "weights": weights_of(self)}]


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

    def describe(self) -> list[dict[str, Any]]:
        shape = {"stride": self.stride, "padding": self.padding}
        return [{"op": "conv", "weights": weights_of(self), **shape}]


class LayerNorm(nn.Module):
    """Mean 0 and variance 1 over the last `axes` dimensions, then a scale and a bias for each of the last.

    Ba et al. 2016. Moments are taken in float32.
    """

    dtype: jnp.dtype = jnp.float32
    axes: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        return layer_norm(x.astype(jnp.float32), scale, bias, self.axes).astype(self.dtype)

    def describe(self) -> list[dict[str, Any]]:
        moments = {"axes": self.axes, "epsilon": EPSILON}
        return [{"op": "layer_norm", "weights": weights_of(self), **moments}]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: Array, scale: Array, bias: Array, axes: int) -> Array:
    """float32[..., C] of `x` float32[..., C], with `scale` and `bias` float32[C]; see `LayerNorm`."""
    return _forward(x, scale, bias, axes)[0]


def _forward(x: Array, scale: Array, bias: Array, axes: int) -> tuple[Array, tuple[Array, Array, Array]]:
    over = tuple(range(-axes, 0))
    centred = x - x.mean(axis=over, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.square(centred).mean(axis=over, keepdims=True) + EPSILON)
    normal = centred * inverse
    ranked = [jax.lax.broadcast_to_rank(p, x.ndim) for p in (scale, bias)]
    return normal * ranked[0] + ranked[1], (normal, inverse, scale)


def _backward(axes: int, saved: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    normal, inverse, scale = saved
    over = tuple(range(-axes, 0))
    rows = tuple(range(gradient.ndim - 1))
    product = gradient * normal
    ranked = jax.lax.broadcast_to_rank(scale, gradient.ndim)
    # The parts of the gradient that a shift and a stretch of x would take away again.
    shift = (gradient * ranked).mean(axis=over, keepdims=True)
    stretch = (product * ranked).mean(axis=over, keepdims=True)
    dx = inverse * (gradient * ranked - shift - normal * stretch)
    return dx, product.sum(axis=rows), gradient.sum(axis=rows)


layer_norm.defvjp(_forward, _backward)
