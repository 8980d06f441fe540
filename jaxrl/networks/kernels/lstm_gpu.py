"""The LSTM over time as a kernel for NVIDIA GPUs, compiled by Triton.

A program of the kernel's grid takes a few environments through all steps, with their carry in registers, so
that multiprocessors need not wait for each other. Each step needs all recurrent weights. They stay in shared
memory if every GPU has room for them; larger ones are read from the L2 cache in each step. `lstm_kernel`
decides where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.networks.kernels.cells import Launch, LSTMSteps
from jaxrl.networks.kernels.lstm_gpu_kernels import KernelWork, Tiles, backward_kernel, forward_kernel
from jaxrl.networks.kernels.products import kernel_precision
from jaxrl.types import Array, Carry

Dtype = Any

# Reading larger weights in each step should take longer than the scan's kernels, whose products use all
# multiprocessors; and the unrolled program takes minutes to compile.
_MOST_UNITS = 256
# The fewest rows of Triton's matrix products: few, so that many multiprocessors have work.
_ROWS = 16
# The smallest side of a matrix in Triton's products, and the largest with which registers suffice, by bytes
# of an operand.
_FEWEST_COLUMNS = 16
_MOST_COLUMNS = {2: 128, 4: 64}
# Weights in shared memory, beside 16 KiB for operands: a kernel may have 99 KiB on every GPU since Ampere.
_RESIDENT = 64 * 2**10


def plan(length: int, rows: int, size: int, dtype: Dtype) -> Tiles | None:
    """Chooses the kernel's tiles; None if the kernel does not apply, as for a single step."""
    if length < 2 or size > _MOST_UNITS:
        return None
    itemsize = jnp.dtype(dtype).itemsize
    columns = min(pl.next_power_of_2(max(size, _FEWEST_COLUMNS)), _MOST_COLUMNS[itemsize])
    count = pl.cdiv(size, columns)
    resident = 4 * (count * columns) ** 2 * itemsize <= _RESIDENT
    return Tiles(_ROWS, columns, count, 8 if columns >= 64 else 4, resident)


def largest_size(dtype: Dtype) -> int:
    """The largest H for which the kernel applies."""
    return _MOST_UNITS


def forward(
    launch: Launch, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry, Array, Array]:
    """(h_LNH, last carry, c before each step, tanh of each step's gates)."""
    size = weight_HG.shape[0]
    weight_4HH = weight_HG.reshape(size, 4, size).transpose(1, 0, 2)
    (h_LNH, c_before_LNH, tanh_LN4H), last = _call(
        forward_kernel,
        launch,
        reset_LN,
        (_by_gate(inputs_LNG),),
        weight_4HH,
        carry,
        ((size,), (size,), (4, size)),
    )
    return h_LNH, last, c_before_LNH, tanh_LN4H.reshape(inputs_LNG.shape)


def backward(launch: Launch, kept: LSTMSteps, dh_LNH: Array, dlast: Carry) -> tuple[Array, Carry]:
    """Gradients of the inputs and of the carry before the first step."""
    size = kept.weight_HG.shape[0]
    weight_4HH = kept.weight_HG.T.reshape(4, size, size)
    over_time = (_by_gate(kept.tanh_LNG), kept.c_before_LNH, dh_LNH)
    (dinputs_LN4H,), dcarry = _call(
        backward_kernel, launch, kept.reset_LN, over_time, weight_4HH, dlast, ((4, size),)
    )
    return dinputs_LN4H.reshape(kept.tanh_LNG.shape), dcarry


def _by_gate(x_LNG: Array) -> Array:
    return x_LNG.reshape(*x_LNG.shape[:2], 4, -1)


def _call(
    kernel: Callable[..., None],
    launch: Launch,
    reset_LN: Array,
    over_time: Sequence[Array],
    weight_4HH: Array,
    carry: Carry,
    widths: Sequence[tuple[int, ...]],
) -> tuple[list[Array], Carry]:
    """(results over time, the carry after the last turn) of a kernel over blocks of environments.

    The kernel takes its work, then references to: resets, `over_time` [L, N, ...], weights, c and h before;
    then to its results. `widths` are the shapes of those over time, without L and N.
    """
    tiles: Tiles = launch.plan
    (length, rows), size = reset_LN.shape, carry["h"].shape[-1]
    precision = kernel_precision(launch.dtype, "tensorfloat32")
    work = KernelWork(tiles=tiles, length=length, rows=rows, size=size, precision=precision)
    units = tiles.count * tiles.columns
    resets = jnp.pad(reset_LN.astype(jnp.int32), ((0, 0), (0, -rows % tiles.rows)))
    weight_4HH = jnp.pad(weight_4HH.astype(launch.dtype), ((0, 0), (0, units - size), (0, units - size)))

    def steps_of(width: Sequence[int]) -> pl.BlockSpec:
        # Whole tiles: the kernel itself leaves out what lies outside of the array.
        block = (length, tiles.rows, *width[:-1], *(units for _ in width[-1:]))
        return pl.BlockSpec(block, lambda n: (0, n, *(0 for _ in width)))

    whole = pl.BlockSpec(weight_4HH.shape, lambda n: (0, 0, 0))
    of_rows = pl.BlockSpec((tiles.rows, units), lambda n: (n, 0))
    state = jax.ShapeDtypeStruct((rows, size), jnp.float32)
    shapes = [jax.ShapeDtypeStruct((length, rows, *width), jnp.float32) for width in widths]
    *results, c, h = pl.pallas_call(
        partial(kernel, work),
        grid=(pl.cdiv(rows, tiles.rows),),
        in_specs=[steps_of(()), *(steps_of(x.shape[2:]) for x in over_time), whole, of_rows, of_rows],
        out_specs=[*(steps_of(width) for width in widths), of_rows, of_rows],
        out_shape=[*shapes, state, state],
        compiler_params=triton.CompilerParams(num_warps=tiles.warps, num_stages=1),
        interpret=launch.interpret,
    )(resets, *over_time, weight_4HH, carry["c"], carry["h"])
    return results, {"c": c, "h": h}
