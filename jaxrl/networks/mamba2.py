"""Mamba-2: a state space with one decay for each head, which the input chooses."""

from __future__ import annotations

import math
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.fast_weights import FastWeights
from jaxrl.networks.kernels.matrix_memory import MemoryInputs, matrix_memory
from jaxrl.types import Array

# Time steps of the first and the last head before the input has a say (Gu and Dao 2023, section 3.6).
_TIME_STEP = (1e-1, 1e-3)


class Mamba2(FastWeights):
    """S_t = exp(-A dt_t) S_{t-1} + dt_t x_t B_t^T; y_t = S_t C_t + D x_t, normalised, gated and added.

    Dao and Gu 2024, "Transformers are SSMs", section 7; dt = softplus(u W + bias), and A > 0 and D are one
    number for each head. Every head has its own B and C, its state has as many columns as rows, and the gate
    comes after the norm. Without the convolution over the last four steps that the paper puts before B, C and
    x, and without its expansion to twice the units. A begins as 1 in all heads, not sampled from 1 to 16, and
    the first time steps are spread evenly over the heads, not sampled.
    """

    kind: ClassVar[str] = "mamba2"

    def remember(
        self, u_LNF: Array, projected: tuple[Array, Array, Array], carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        c, b, x = (jax.nn.silu(part) for part in projected)
        (step,) = self.rates(u_LNF, _time_steps, 1)
        step = jax.nn.softplus(step)
        log_a = self.param("log_a", nn.initializers.zeros, (self.heads,))
        skip = self.param("skip", nn.initializers.ones, (self.heads,))
        inputs = MemoryInputs(
            query=c, key=b, value=x, log_decay=-jnp.exp(log_a)[None, None] * step, strength=step
        )
        state, y = matrix_memory(carry["state"], inputs, reset_LN)
        return y + skip[None, None, :, None] * x, {"state": state}


def _time_steps(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    low, high = (math.log(x) for x in _TIME_STEP)
    # softplus(bias) = the time step.
    return jnp.log(jnp.expm1(jnp.exp(jnp.linspace(low, high, shape[0])))).astype(dtype)
