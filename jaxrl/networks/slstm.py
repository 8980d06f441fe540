"""The layer of xLSTM that mixes its memory: an LSTM with exponential input gates and a normaliser."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.cells import SLSTM as CELL
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan
from jaxrl.networks.layers import per_block_orthogonal, weights_of
from jaxrl.types import Array

# Of the first and the last unit at first: one forgets half in a step, the other in a hundred.
_FORGET_BIAS = (0.0, 5.0)


class SLSTM(Core):
    """c_t = f_t c_{t-1} + i_t z_t, n_t = f_t n_{t-1} + i_t, h_t = o_t c_t / n_t, with i_t = exp(...).

    Beck et al. 2024, "xLSTM: extended long short-term memory", with sigmoid forget gates. Each gate of a head
    sees the last output of its own head alone. Without the convolution over the last four steps that the
    paper's block puts before the gates, and without the group norm and the dense layers after it.
    """

    waits_for_the_carry: ClassVar[bool] = True
    size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> dict[str, Array]:
        return {name: jnp.zeros((n, self.size), jnp.float32) for name in CELL.state}

    @nn.compact
    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        size = self.size
        width = size // self.heads
        weight_x = self.param("input", per_block_orthogonal(4), (x_LNF.shape[-1], 4 * size))
        weight_h = self.param("recurrent", _of_heads, (self.heads, width, 4 * width))
        bias = self.param("bias", _memories, (4 * size,))
        inputs = matmul(x_LNF.astype(self.dtype), weight_x.astype(self.dtype)) + bias[None, None]
        y, carry = recurrent_scan(CELL, self.dtype, weight_h, inputs, carry, reset_LN)
        return y.astype(self.dtype), carry

    def describe(self) -> dict[str, Any]:
        return {"type": "slstm", "weights": weights_of(self), "size": self.size, "heads": self.heads}


def _of_heads(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    keys = jax.random.split(key, shape[0])
    return jnp.stack([per_block_orthogonal(4)(k, shape[1:], dtype) for k in keys])


def _memories(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """Biases of the gates i, f, z and o; forget gates begin for short and for long memories."""
    size = shape[0] // 4
    return jnp.zeros(shape, dtype).at[size : 2 * size].set(jnp.linspace(*_FORGET_BIAS, size))
