"""The recurrence over time, with a backward pass written for speed.

Differentiating a plain `lax.scan` accumulates the recurrent weight gradient inside the loop: one small
matrix product and one read-modify-write of the whole matrix per time step. Here the backward scan
computes only the gradients of the pre-activations, and the weight gradient is ONE matrix product over
all time steps afterwards. The elementwise part of a cell is differentiated by JAX, so that a cell is only
its equations; its activations are kept from the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

Dtype = Any

# (projected input [N, G], recurrent projection [N, G], carry) -> carry; carry["h"] is the output.
Cell = Callable[[Array, Array, dict[str, Array]], dict[str, Array]]


def masked(carry: dict[str, Array], reset_N: Array) -> dict[str, Array]:
    """Zeroes the carry of environments whose next observation opens an episode."""
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    return jax.tree.map(lambda x: jnp.where(reset_N[:, None], 0.0, x), carry)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recurrent_scan(
    cell: Cell,
    dtype: Dtype,
    weight_HG: Array,
    inputs_LNG: Array,
    carry: dict[str, Array],
    reset_LN: Array,
) -> tuple[Array, dict[str, Array]]:
    """Runs `cell` over time, zeroing the carry where `reset_LN` is set before the step.

    Args:
      cell: elementwise cell equations.
      dtype: operands of the matrix products; they accumulate in float32.
      weight_HG: float32, recurrent weights.
      inputs_LNG: float32, x_t W_x + b of every step.
      carry: float32 [N, H] arrays, among them "h".
      reset_LN: bool; resets the carry before step t.

    Returns:
      (h_LNH, carry after the last step); float32.
    """
    h_LNH, carry, _ = _forward(cell, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    return h_LNH, carry


def _dot(a: Array, b: Array, dtype: Dtype) -> Array:
    return jnp.dot(a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32)


def _forward(
    cell: Cell, dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: PyTree, reset_LN: Array
) -> tuple[Array, PyTree, PyTree]:
    def step(carry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
        inputs_NG, reset_N = xs
        before = masked(carry, reset_N)
        recurrent_NG = _dot(before["h"], weight_HG, dtype)
        # The pullback is a tree of arrays, the activations: kept for each step, not computed again.
        after, pullback = jax.vjp(cell, inputs_NG, recurrent_NG, before)
        return after, (after["h"], before["h"], pullback)

    xs = (inputs_LNG, reset_LN)
    if reset_LN.shape[0] == 1:  # the rollout's single step needs no loop around it
        last, records = step(carry, jax.tree.map(lambda x: x[0], xs))
        h_LNH, before_LNH, pullback_L = jax.tree.map(lambda x: x[None], records)
    else:
        last, (h_LNH, before_LNH, pullback_L) = jax.lax.scan(step, carry, xs)
    return h_LNH, last, (weight_HG, reset_LN, before_LNH, pullback_L)


def _vjp_forward(
    cell: Cell, dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: PyTree, reset_LN: Array
) -> tuple[PyTree, PyTree]:
    h_LNH, last, residuals = _forward(cell, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    return (h_LNH, last), residuals


def _vjp_backward(cell: Cell, dtype: Dtype, residuals: PyTree, cotangents: PyTree) -> tuple[PyTree, ...]:
    weight_HG, reset_LN, before_LNH, pullback_L = residuals
    dh_LNH, dlast = cotangents

    def step(dcarry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
        dh_NH, reset_N, pullback = xs
        dinputs_NG, drecurrent_NG, dbefore = pullback({**dcarry, "h": dcarry["h"] + dh_NH})
        dh = _dot(drecurrent_NG, weight_HG.T, dtype)
        dbefore = {**dbefore, "h": dbefore["h"] + dh}
        return masked(dbefore, reset_N), (dinputs_NG, drecurrent_NG)

    dcarry, (dinputs_LNG, drecurrent_LNG) = jax.lax.scan(
        step, dlast, (dh_LNH, reset_LN, pullback_L), reverse=True
    )
    size, gates = weight_HG.shape
    dweight_HG = _dot(before_LNH.reshape(-1, size).T, drecurrent_LNG.reshape(-1, gates), dtype)
    return dweight_HG, dinputs_LNG, dcarry, None


recurrent_scan.defvjp(_vjp_forward, _vjp_backward)
