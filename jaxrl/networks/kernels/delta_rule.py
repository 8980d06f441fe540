"""The gated delta rule over time: a matrix that is corrected towards a value at each key, and fades.

S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, and y_t = S_t q_t (Yang et al. 2024, "Gated Delta
Networks", equation 10).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl.types import Array

# Steps between the states that are stored for gradients; the others are computed again. A state is much
# larger than what a step puts in.
_STORED_EVERY = 16


class DeltaInputs(NamedTuple):
    """The inputs of a step, float32, for the heads of [N] or [L, N] environments.

    Attributes:
      query, key: [..., heads, K]; keys of norm 1, or the state grows.
      value: [..., heads, V].
      decay: [..., heads], a in (0, 1].
      strength: [..., heads], b in (0, 1).
    """

    query: Array
    key: Array
    value: Array
    decay: Array
    strength: Array


def delta_step(state: Array, inputs: DeltaInputs, reset_N: Array) -> tuple[Array, Array]:
    """(state after one step, y), both float32.

    Args:
      state: float32[N, heads, V, K].
      inputs: of one step.
      reset_N: bool; the state counts as zeros.
    """
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    state = jnp.where(reset_N[:, None, None, None], 0.0, state) * inputs.decay[..., None, None]
    # Sums of products rather than dots: a CPU computes them in the loop that also reads the state.
    found = (state * inputs.key[..., None, :]).sum(axis=-1)
    error = inputs.strength[..., None] * (inputs.value - found)
    state = state + error[..., None] * inputs.key[..., None, :]
    return state, (state * inputs.query[..., None, :]).sum(axis=-1)


def delta_rule(state: Array, inputs: DeltaInputs, reset_LN: Array) -> tuple[Array, Array]:
    """The rule over a sequence.

    Args:
      state: float32[N, heads, V, K], before it.
      inputs: of [L, N] steps.
      reset_LN: bool; the state counts as zeros before step t.

    Returns:
      (state after the last step, y float32[L, N, heads, V]).
    """
    length = len(reset_LN)
    if length == 1:
        state, y = delta_step(state, jax.tree.map(lambda x: x[0], inputs), reset_LN[0])
        return state, y[None]
    count = -(-length // _STORED_EVERY)
    if count == 1:
        return _scan(state, (inputs, reset_LN))
    missing = count * _STORED_EVERY - length

    def blocks(x: Array, value: float = 0.0) -> Array:
        x = jnp.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1), constant_values=value)
        return x.reshape(count, _STORED_EVERY, *x.shape[1:])

    # Padding neither fades nor writes, so that the last state is that of the last step.
    padded = jax.tree.map(blocks, inputs)._replace(decay=blocks(inputs.decay, 1.0))
    state, y = lax.scan(jax.checkpoint(_scan), state, (padded, blocks(reset_LN)))
    return state, y.reshape(-1, *y.shape[2:])[:length]


def _scan(state: Array, xs: tuple[DeltaInputs, Array]) -> tuple[Array, Array]:
    return lax.scan(lambda state, x: delta_step(state, *x), state, xs)
