"""A core of fast weights: the carry is a matrix for each head, which its keys and values rewrite."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl.networks.fast_weights import EPSILON, FastWeights
from jaxrl.networks.kernels.matrix_memory import MemoryInputs, matrix_memory
from jaxrl.types import Array

# The first and the last head forget half of what they hold in about this many steps.
_MEMORY = (8.0, 512.0)


class GatedDelta(FastWeights):
    """S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T; y_t = S_t q_t, normalised, gated and added.

    Yang et al. 2024, "Gated delta networks: improving Mamba2 with delta rule": queries and keys of norm 1,
    and for each head a decay a = exp(-softplus(x W_a + bias)) and a strength b = sigmoid(x W_b).
    Without the convolution over the last four steps that the paper puts before them, and without its
    factor of the softplus, which the bias stands for.
    """

    kind: ClassVar[str] = "gated_delta"

    def remember(
        self, u_LNF: Array, projected: tuple[Array, Array, Array], carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        query, key, value = (jax.nn.silu(x) for x in projected)
        decay, strength = self.rates(u_LNF, _rates, 2)
        inputs = MemoryInputs(
            query=_unit(query),
            key=_unit(key),
            value=value,
            log_decay=-jax.nn.softplus(decay),
            strength=jax.nn.sigmoid(strength),
        )
        state, y = matrix_memory(carry["state"], inputs, reset_LN, corrects=True)
        return y, {"state": state}


def _unit(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.square(x).sum(axis=-1, keepdims=True) + EPSILON)


def _rates(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """Biases of decay and strength: heads remember for different times, and write with 1/2."""
    heads = shape[0] // 2
    halving = jnp.geomspace(*_MEMORY, heads)
    # softplus(bias) = log 2 / halving.
    bias = jnp.log(jnp.expm1(math.log(2) / halving))
    return jnp.concatenate([bias, jnp.zeros(heads)]).astype(dtype)
