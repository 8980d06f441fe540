"""A core of fast weights: the carry is a matrix for each head, which its keys and values rewrite."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.delta_rule import DeltaInputs, delta_rule
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.layers import LayerNorm, orthogonal, per_block_orthogonal, residual_stream, weights_of
from jaxrl.types import Array

# The first and the last head forget half of what they hold in about so many steps.
_MEMORY = (8.0, 512.0)
# Of the norms. Of what is read back it keeps how much was found: a read of nothing stays nearly nothing.
_EPSILON = 1e-2


class GatedDelta(Core):
    """S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T; y_t = S_t q_t, normalised, gated and added.

    Yang et al. 2024, "Gated delta networks: improving Mamba2 with delta rule": queries and keys of norm 1,
    and for each head a decay a = exp(-softplus(x W_a + bias)) and a strength b = sigmoid(x W_b).
    Without the convolution over the last four steps that the paper puts before them, and without its
    factor of the softplus, which the bias stands for.
    """

    waits_for_the_carry: ClassVar[bool] = True
    has_residual: ClassVar[bool] = True
    size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> dict[str, Array]:
        width = self.size // self.heads
        return {"state": jnp.zeros((n, self.heads, width, width), jnp.float32)}

    @nn.compact
    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        size = self.size
        heads = self.heads
        x = residual_stream(self, x_LNF, size, self.dtype)
        u = LayerNorm(self.dtype, name="norm")(x)
        weight = self.param("input", per_block_orthogonal(4), (size, 4 * size)).astype(self.dtype)
        parts = jnp.split(matmul(u, weight), 4, axis=-1)
        query, key, value = (jax.nn.silu(x.reshape(*x.shape[:2], heads, -1)) for x in parts[:3])
        weight = self.param("rates", nn.initializers.normal(1 / math.sqrt(size)), (size, 2 * heads))
        rates = matmul(u, weight.astype(self.dtype))
        decay, strength = jnp.split(rates + self.param("bias", _rates, (2 * heads,))[None, None], 2, axis=-1)
        inputs = DeltaInputs(
            query=_unit(query),
            key=_unit(key),
            value=value,
            log_decay=-jax.nn.softplus(decay),
            strength=jax.nn.sigmoid(strength),
        )
        state, y = delta_rule(carry["state"], inputs, reset_LN)
        y = y * jax.lax.rsqrt(jnp.square(y).mean(axis=-1, keepdims=True) + _EPSILON)
        y = y.reshape(*y.shape[:2], size) * self.param("scale", nn.initializers.ones, (size,))[None, None]
        y = (y * jax.nn.silu(parts[3])).astype(self.dtype)
        y = matmul(y, self.param("output", orthogonal(), (size, size)).astype(self.dtype))
        return (x + y).astype(self.dtype), {"state": state}

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "heads": self.heads}
        return {"type": "gated_delta", "weights": weights_of(self), **sizes}


def _unit(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.square(x).sum(axis=-1, keepdims=True) + _EPSILON)


def _rates(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """Biases of decay and strength: heads remember for different times, and write with 1/2."""
    del key
    heads = shape[0] // 2
    halving = jnp.geomspace(*_MEMORY, heads)
    # softplus(bias) = log 2 / halving.
    bias = jnp.log(jnp.expm1(math.log(2) / halving))
    return jnp.concatenate([bias, jnp.zeros(heads)]).astype(dtype)
