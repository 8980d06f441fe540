"""Cores with a matrix for each head: their common part, linear attention, Mamba-2, gated delta and mLSTM."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.matrix_memory import MemoryInputs, matrix_memory
from jaxrl.networks.layers import (
    LayerNorm,
    orthogonal,
    per_block_orthogonal,
    product,
    residual_stream,
    weights_of,
)
from jaxrl.types import Array, Carry

# Of the norms. Of what is read back it keeps how much was found: a read of nothing stays nearly nothing.
EPSILON = 1e-2
# A sequence of more than `_LONG` steps is cut into segments. The backward pass computes each again, from the
# carry before it, and needs the memory of one; its arrays stay in the cache, which pays for what is computed
# twice. Shorter sequences stay there as they are.
_LONG, _SEGMENT = 256, 128
# Time steps of the first and the last head before the input has a say (Gu and Dao 2023, section 3.6).
_TIME_STEP = (1e-1, 1e-3)
# The first and the last head forget half of what they hold in about this many steps.
_MEMORY = (8.0, 512.0)
# Biases of an mLSTM's forget gates of the first and the last head.
_FORGET = (3.0, 6.0)
# Added to its normaliser, which is nothing where the stabiliser is large and keys do not fit.
_LEAST_NORMALISER = 1e-6

QKV = tuple[Array, Array, Array]  # float32[L, N, heads, width], for queries, keys and values


class FastWeights(Core):
    """x + W_o (norm(y) * silu(z)), where y is read from a matrix for each head with a query.

    Queries, keys, values and the gate z are projections of the normalised input; y is divided by its root
    mean square in each head and scaled. A core of this form says by `remember` what its matrices hold.
    """

    waits_for_the_carry: ClassVar[bool] = True
    has_residual: ClassVar[bool] = True
    kind: ClassVar[str]
    size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        width = self.size // self.heads
        return {"state": jnp.zeros((n, self.heads, width, width), jnp.float32)}

    def remember(self, u_LNF: Array, projected: QKV, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        """(y float32[L, N, heads, width], the carry after the last step).

        Args:
          u_LNF: the normalised input.
          projected: of it, for queries, keys and values: float32[L, N, heads, width] each.
          carry: before the first step.
          reset_LN: the carry counts as zeros before step t.
        """
        raise NotImplementedError

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        if len(reset_LN) <= _LONG:
            return self._segment(x_LNF, carry, reset_LN)
        whole = len(reset_LN) // _SEGMENT * _SEGMENT

        def segment(core: FastWeights, carry: Carry, inputs: tuple[Array, Array]) -> tuple[Carry, Array]:
            y, carry = core._segment(inputs[0], carry, inputs[1])
            return carry, y

        again = nn.remat(segment, prevent_cse=False)
        scan = nn.scan(again, variable_broadcast="params", split_rngs={"params": False})
        x, reset = (x[:whole].reshape(-1, _SEGMENT, *x.shape[1:]) for x in (x_LNF, reset_LN))
        carry, y = scan(self, carry, (x, reset))
        y = y.reshape(whole, *y.shape[2:])
        if whole < len(reset_LN):
            carry, rest = again(self, carry, (x_LNF[whole:], reset_LN[whole:]))
            y = jnp.concatenate([y, rest])
        return y, carry

    def _segment(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        size = self.size
        x = residual_stream(self, x_LNF, size, self.dtype)
        u = LayerNorm(self.dtype, name="norm")(x)
        projected = product(self, "input", u, per_block_orthogonal(4), 4 * size, self.dtype)
        *parts, gate = jnp.split(projected, 4, axis=-1)
        query, key, value = (part.reshape(*part.shape[:2], self.heads, -1) for part in parts)
        y, carry = self.remember(u, (query, key, value), carry, reset_LN)
        y = y * jax.lax.rsqrt(jnp.square(y).mean(axis=-1, keepdims=True) + EPSILON)
        y = y.reshape(*y.shape[:2], size) * self.param("scale", nn.initializers.ones, (size,))[None, None]
        y = product(self, "output", y * jax.nn.silu(gate), orthogonal(), size, self.dtype)
        return (x + y).astype(self.dtype), carry

    def rates(self, u_LNF: Array, bias: nn.initializers.Initializer, count: int) -> list[Array]:
        """`count` numbers for each head, float32[L, N, heads] each: a projection of the input and a bias."""
        width = count * self.heads
        rates = product(
            self, "rates", u_LNF, nn.initializers.normal(1 / math.sqrt(self.size)), width, self.dtype
        )
        return jnp.split(rates + self.param("bias", bias, (width,))[None, None], count, axis=-1)

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "heads": self.heads}
        return {"type": self.kind, "weights": weights_of(self), **sizes}


class LinearAttention(FastWeights):
    """S_t = a S_{t-1} + v_t k_t^T / sqrt(width); y_t = S_t q_t, normalised, gated and added.

    Sun et al. 2023, "Retentive network: a successor to transformer for large language models",
    equations 6 to 8: a = 1 - 2^(-5 - h) for head h, which forgets half of what it holds in 22 steps, the next
    one in 44 and so on. Without the rotation of queries and keys by their position.
    """

    kind: ClassVar[str] = "linear_attention"

    def remember(self, u_LNF: Array, projected: QKV, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        del u_LNF
        query, key, value = projected
        decay = jnp.log1p(-jnp.exp2(-5.0 - jnp.arange(self.heads, dtype=jnp.float32)))
        shape = query.shape[:3]
        inputs = MemoryInputs(
            query=query,
            key=key / math.sqrt(key.shape[-1]),
            value=value,
            log_decay=jnp.broadcast_to(decay[None, None], shape),
            strength=jnp.ones(shape, jnp.float32),
        )
        state, y = matrix_memory(carry["state"], inputs, reset_LN)
        return y, {"state": state}


class Mamba2(FastWeights):
    """S_t = exp(-A dt_t) S_{t-1} + dt_t x_t B_t^T; y_t = S_t C_t + D x_t, normalised, gated and added.

    Dao and Gu 2024, "Transformers are SSMs", section 7; dt = softplus(u W + bias), and A > 0 and D are one
    number for each head. Every head has its own B and C, its state has as many columns as rows, and the gate
    comes after the norm. Without the convolution over the last four steps that the paper puts before B, C and
    x, and without its expansion to twice the units. A begins as 1 in all heads, not sampled from 1 to 16, and
    the first time steps are spread evenly over the heads, not sampled.
    """

    kind: ClassVar[str] = "mamba2"

    def remember(self, u_LNF: Array, projected: QKV, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
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


class GatedDelta(FastWeights):
    """S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T; y_t = S_t q_t, normalised, gated and added.

    Yang et al. 2024, "Gated delta networks: improving Mamba2 with delta rule": queries and keys of norm 1,
    and for each head a decay a = exp(-softplus(x W_a + bias)) and a strength b = sigmoid(x W_b).
    Without the convolution over the last four steps that the paper puts before them, and without its
    factor of the softplus, which the bias stands for.
    """

    kind: ClassVar[str] = "gated_delta"

    def remember(self, u_LNF: Array, projected: QKV, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
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
        size = jnp.maximum(jnp.abs(y[..., -1:]), jnp.exp(-m)[..., None]) + _LEAST_NORMALISER
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
