"""The recurrence over time, with a fast backward pass.

Differentiating a plain `lax.scan` accumulates the recurrent weight gradient inside the loop: one small
matrix product and one read-modify-write of the whole matrix per time step. Here the backward scan
computes only the gradients of the pre-activations, and the weight gradient is ONE matrix product over
all time steps afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.networks.kernels.cells import Cell
from jaxrl.networks.kernels.products import weight_gradient
from jaxrl.types import Array, Carry, PyTree

Dtype = Any
# (carry, inputs of a step) -> (carry, (h, carry before the step, what the cell keeps)).
Step = Callable[[Carry, PyTree], tuple[Carry, PyTree]]
Form = Callable[[Step, Carry, PyTree], tuple[Carry, PyTree]]

# Time steps in each turn of a loop on a GPU: the loop's counter is a kernel in every turn.
GPU_UNROLL = 4


def mask(carry: Carry, reset_N: Array) -> Carry:
    """Zeroes the carry of environments whose next observation opens an episode."""
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    return jax.tree.map(lambda x: jnp.where(reset_N[:, None], 0.0, x), carry)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recurrent_scan(
    cell: Cell, dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry]:
    """float32 (h_LNH, last carry) of `cell` over time; the carry is zeroed before steps of `reset_LN`.

    Args:
      dtype: operands of the matrix products; they accumulate in float32.
      weight_HG: float32, recurrent weights; [heads, H / heads, G / heads] if the gates of a head see its own
        part of "h" alone. `inputs_LNG` have all heads of a gate beside each other in both cases.
      inputs_LNG: float32, x_t W_x + b of every step.
      carry: float32 [N, H] arrays, among them "h".
    """
    h_LNH, carry, _ = scan_forward(cell, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    return h_LNH, carry


def _dot(a: Array, b: Array, dtype: Dtype) -> Array:
    return jnp.dot(a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32)


def _project(h_NH: Array, weight: Array, gates: int, dtype: Dtype) -> Array:
    """The recurrent projection [N, G]; see `recurrent_scan` for the weights."""
    if weight.ndim == 2:
        return _dot(h_NH, weight, dtype)
    # On a CPU a product for each head is faster than a batch of them, or than one with zeros between heads.
    heads = zip(jnp.split(h_NH, len(weight), axis=-1), weight, strict=True)
    parts = [_dot(h, w, dtype).reshape(*h.shape[:-1], gates, -1) for h, w in heads]
    return jnp.concatenate(parts, axis=-1).reshape(*h_NH.shape[:-1], -1)


def _of_heads(x: Array, heads: int, gates: int) -> list[Array]:
    """Splits [..., G] into the [..., G / heads] of each head."""
    parts = jnp.split(x.reshape(*x.shape[:-1], gates, -1), heads, axis=-1)
    return [part.reshape(*x.shape[:-1], -1) for part in parts]


def scan_forward(
    cell: Cell,
    dtype: Dtype,
    weight_HG: Array,
    inputs_LNG: Array,
    carry: Carry,
    reset_LN: Array,
    form: Form | None = None,
) -> tuple[Array, Carry, PyTree]:
    """(h_LNH, last carry, (weight_HG, reset_LN, carries before each step, what the cell keeps of each)).

    `form` is the loop over time, `storing_each` or `storing_one`; None takes what suits the platform.
    """

    def step(carry: Carry, xs: PyTree) -> tuple[Carry, PyTree]:
        inputs_NG, reset_N = xs
        before = mask(carry, reset_N)
        after, kept = cell.forward(inputs_NG, _project(before["h"], weight_HG, cell.gates, dtype), before)
        return after, (after["h"], before, kept)

    xs = (inputs_LNG, reset_LN)
    if reset_LN.shape[0] == 1:  # the rollout's single step needs no loop around it
        last, records = step(carry, jax.tree.map(lambda x: x[0], xs))
        h_LNH, before_L, kept_L = jax.tree.map(lambda x: x[None], records)
        return h_LNH, last, (weight_HG, reset_LN, before_L, kept_L)

    forms = {"cuda": storing_one, "default": storing_each} if form is None else {"default": form}
    by_platform = {name: partial(loop, step) for name, loop in forms.items()}
    last, (h_LNH, before_L, kept_L) = jax.lax.platform_dependent(carry, xs, **by_platform)
    return h_LNH, last, (weight_HG, reset_LN, before_L, kept_L)


def storing_each(step: Step, carry: Carry, xs: PyTree) -> tuple[Carry, PyTree]:
    """A plain scan: every array that a step returns is stored."""
    return jax.lax.scan(step, carry, xs)


def storing_one(step: Step, carry: Carry, xs: PyTree) -> tuple[Carry, PyTree]:
    """The same with fewer kernels on a GPU, where storing each array is one.

    The carries before each step are those after the one before it, and are not stored again.
    """
    _, reset_LN = xs
    _, (_, _, kept) = jax.eval_shape(step, carry, jax.tree.map(lambda x: x[0], xs))
    leaves, structure = jax.tree.flatten((carry, kept))
    ends = list(itertools.accumulate(x.shape[-1] for x in leaves))

    def packing_step(carry: Carry, xs: PyTree) -> tuple[Carry, Array]:
        after, (_, _, kept) = step(carry, xs)
        parts = [x.astype(jnp.float32) for x in jax.tree.leaves((after, kept))]
        return after, jnp.concatenate(parts, axis=-1)

    last, packed_LNK = jax.lax.scan(packing_step, carry, xs, unroll=GPU_UNROLL)
    parts = jnp.split(packed_LNK, ends[:-1], axis=-1)
    parts = [part.astype(x.dtype) for part, x in zip(parts, leaves, strict=True)]
    after_L, kept_L = jax.tree.unflatten(structure, parts)
    before_L = jax.tree.map(lambda x, after: jnp.concatenate([x[None], after[:-1]]), carry, after_L)
    before_L = jax.tree.map(lambda x: jnp.where(reset_LN[..., None], 0.0, x), before_L)
    return last, (after_L["h"], before_L, kept_L)


def _vjp_forward(
    cell: Cell, dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[PyTree, PyTree]:
    h_LNH, last, residuals = scan_forward(cell, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    return (h_LNH, last), residuals


def scan_backward(cell: Cell, dtype: Dtype, residuals: PyTree, cotangents: PyTree) -> tuple[PyTree, ...]:
    """Gradients of the array arguments of `recurrent_scan`, from what `scan_forward` kept."""
    before_L = residuals[2]
    dinputs_LNG, drecurrent_LNG, dcarry = scan_gradients(cell, dtype, residuals, cotangents)
    h_LNH, drecurrent_LNG = before_L["h"].astype(dtype), drecurrent_LNG.astype(dtype)
    weight = residuals[0]
    if weight.ndim == 2:
        return weight_gradient(h_LNH, drecurrent_LNG), dinputs_LNG, dcarry, None
    heads = len(weight)
    parts = zip(jnp.split(h_LNH, heads, axis=-1), _of_heads(drecurrent_LNG, heads, cell.gates), strict=True)
    return jnp.stack([weight_gradient(h, d) for h, d in parts]), dinputs_LNG, dcarry, None


def scan_gradients(
    cell: Cell, dtype: Dtype, residuals: PyTree, cotangents: PyTree
) -> tuple[Array, Array, Carry]:
    """Gradients of the inputs, of the recurrent projections, and of the carry before the first step."""
    weight_HG, reset_LN, before_L, kept_L = residuals
    dh_LNH, dlast = cotangents
    # Transposed once: on CPU a product with a transposed operand of few rows runs at half speed, and without
    # the barrier XLA would move the transposition back into every step.
    weight_GH = jax.lax.optimization_barrier(jnp.swapaxes(weight_HG, -1, -2))

    def unproject(d_NG: Array) -> Array:
        if weight_GH.ndim == 2:
            return _dot(d_NG, weight_GH, dtype)
        parts = zip(_of_heads(d_NG, len(weight_GH), cell.gates), weight_GH, strict=True)
        return jnp.concatenate([_dot(d, w, dtype) for d, w in parts], axis=-1)

    def step(dcarry: Carry, xs: PyTree) -> tuple[Carry, PyTree]:
        dh_NH, reset_N, before, kept = xs
        dinputs_NG, drecurrent_NG, dbefore = cell.backward(kept, before, {**dcarry, "h": dcarry["h"] + dh_NH})
        dbefore = {**dbefore, "h": dbefore["h"] + unproject(drecurrent_NG)}
        # Equal gradients are stored once.
        different = None if drecurrent_NG is dinputs_NG else drecurrent_NG
        return mask(dbefore, reset_N), (dinputs_NG, different)

    def scan(dlast: Carry, xs: PyTree, unroll: int = 1) -> tuple[Carry, PyTree]:
        return jax.lax.scan(step, dlast, xs, reverse=True, unroll=unroll)

    xs = (dh_LNH, reset_LN, before_L, kept_L)
    dcarry, (dinputs_LNG, drecurrent_LNG) = jax.lax.platform_dependent(
        dlast, xs, cuda=partial(scan, unroll=GPU_UNROLL), default=scan
    )
    return dinputs_LNG, dinputs_LNG if drecurrent_LNG is None else drecurrent_LNG, dcarry


recurrent_scan.defvjp(_vjp_forward, scan_backward)
