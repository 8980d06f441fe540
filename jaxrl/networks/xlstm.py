"""xLSTM's layers with exponential input gates: mLSTM, whose cell is a matrix for each head, and sLSTM."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from jaxrl.networks.core import Core
from jaxrl.networks.fast_weights import QKV, FastWeights
from jaxrl.networks.kernels.cells import SLSTM as CELL
from jaxrl.networks.kernels.matrix_memory import MemoryInputs, matrix_memory
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan
from jaxrl.networks.layers import per_block_orthogonal, weights_of
from jaxrl.types import Array, Carry

# Biases of the forget gates of the first and the last head.
_FORGET = (3.0, 6.0)
# Added to the normaliser, which is nothing where the stabiliser is large and keys do not fit.
_EPSILON = 1e-6
# Of the first and the last unit at first: one forgets half in a step, the other in a hundred.
_FORGET_BIAS = (0.0, 5.0)


class MLSTM(FastWeights):
    """C_t = f_t C_{t-1} + i_t v_t k_t^T, n_t = f_t n_{t-1} + i_t k_t, y_t = C_t q_t / max(|n_t . q_t|, 1).

    Beck et al. 2024, "xLSTM: extended long short-term memory", equations 19 to 27: i = exp(u W_i + bias),
    f = sigmoid(u W_f + bias), keys divided by sqrt(width), and y normalised, gated and added. Without the
    convolution over the last four steps, the skip around the cell and the expansion to twice the units of the
    paper's block; the gate is its silu(z).

    The carry holds C exp(-m) and n exp(-m), as in the paper's appendix A: y does not depend on the stabiliser
    m_t = max(log f_t + m_{t-1}, log i_t, 0), only the size of what is stored does. With 0, which the paper
    leaves out, exp(-m) cannot overflow.
    """

    kind: ClassVar[str] = "mlstm"

    def initial_carry(self, n: int) -> Carry:
        width = self.size // self.heads
        # The normaliser is the last row: it is what a value of 1 would have written.
        state = jnp.zeros((n, self.heads, width + 1, width), jnp.float32)
        return {"stabiliser": jnp.zeros((n, self.heads), jnp.float32), "state": state}

    def remember(self, u_LNF: Array, projected: QKV, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        query, key, value = projected
        log_i, forget = self.rates(u_LNF, _gates, 2)
        log_f = jax.nn.log_sigmoid(forget)
        m = stabiliser(log_f, log_i, carry["stabiliser"], reset_LN)
        before = jnp.concatenate([carry["stabiliser"][None], m[:-1]])
        inputs = MemoryInputs(
            query=query,
            key=key / math.sqrt(key.shape[-1]),
            value=jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1),
            # After a reset the decay has nothing to fade, but must be finite.
            log_decay=jnp.where(reset_LN[..., None], 0.0, log_f + before - m),
            strength=jnp.exp(log_i - m),
        )
        state, y = matrix_memory(carry["state"], inputs, reset_LN)
        size = jnp.maximum(jnp.abs(y[..., -1:]), jnp.exp(-m)[..., None]) + _EPSILON
        return y[..., :-1] / size, {"stabiliser": m[-1], "state": state}


def stabiliser(log_f_LNH: Array, log_i_LNH: Array, m_NH: Array, reset_LN: Array) -> Array:
    """m_t = max(log f_t + m_{t-1}, log i_t, 0), with m_{t-1} taken as 0 at a reset; without a gradient.

    What is read does not depend on m, so its gradients sum to zero. What is not finite counts as 0, so that
    it does not reach the next episode.
    """
    log_f, log_i, m = (
        lax.stop_gradient(jnp.where(jnp.isfinite(x), x, 0.0)) for x in (log_f_LNH, log_i_LNH, m_NH)
    )
    log_f = jnp.where(reset_LN[..., None], -jnp.inf, log_f)
    least = jnp.maximum(log_i, 0.0)
    least = jnp.concatenate([jnp.maximum(least[:1], log_f[:1] + m[None]), least[1:]])

    def join(before: tuple[Array, Array], after: tuple[Array, Array]) -> tuple[Array, Array]:
        return before[0] + after[0], jnp.maximum(after[0] + before[1], after[1])

    return lax.associative_scan(join, (log_f, least))[1]


def _gates(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    heads = shape[0] // 2
    return jnp.concatenate([jnp.zeros(heads), jnp.linspace(*_FORGET, heads)]).astype(dtype)


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

    def initial_carry(self, n: int) -> Carry:
        return {name: jnp.zeros((n, self.size), jnp.float32) for name in CELL.state}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
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
