"""The LSTM over time as a TPU kernel that keeps the recurrent weights and the carry on the chip.

A scan compiles to separate operations for every step. Here one kernel holds the loop over time: a block of
environments goes through all steps while weights and carry stay in vector memory. Only inputs, outputs and
what the backward pass needs are moved, overlapped with computation. `lstm_kernel` decides where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxrl.networks.kernels.cells import LSTM, Launch, LSTMSteps, lstm_backward, lstm_gates, lstm_tanh_c
from jaxrl.networks.kernels.products import kernel_precision
from jaxrl.types import Array, Carry

Dtype = Any

# Budget of vector memory: by default libtpu gives a kernel 16 MiB on every generation.
_MEMORY = 14 * 2**20
# With 256 rows a v5e already computes for as long as it waits for memory, so larger blocks gain nothing. Many
# blocks of few rows would load the weights into the matrix units more often than a scan does.
_MOST_ROWS = 256
_FEWEST_ROWS = 64
# Turns shorter than the sequence, so that copies of one overlap with computation of another.
_MOST_STEPS = 16
_SUBLANES, _LANES = 8, 128  # rows and columns of a register; arrays in vector memory are padded to them
# Float32 arrays [rows, H] in vector memory. Ten of each step (four gates twice, two others) and four of the
# carry are there twice, as one is copied while the other is used; intermediates once.
_OF_STEP = 2 * 10
_OF_CARRY = 2 * 4
_INTERMEDIATE = 16


@dataclass(frozen=True)
class Blocks:
    """Environments (`rows`) and time steps that one turn of the kernel's grid computes."""

    rows: int
    steps: int


def plan(length: int, rows: int, size: int, dtype: Dtype) -> Blocks | None:
    """Chooses the kernel's blocks; None if the kernel does not apply.

    A single step has no loop to put into a kernel, and the weights must fit beside a block of environments.
    """
    if length < 2:
        return None
    columns = _up(size, _LANES)
    weights = 4 * columns * columns * jnp.dtype(dtype).itemsize
    for count in range(1, pl.cdiv(rows, _FEWEST_ROWS) + 1):
        block = _up(pl.cdiv(rows, count), _SUBLANES)
        array = 4 * block * columns
        room = (_MEMORY - weights - (_OF_CARRY + _INTERMEDIATE) * array) // (_OF_STEP * array)
        if block <= _MOST_ROWS and room >= 1:
            most = min(room, _MOST_STEPS, length)
            steps = next(n for n in range(most, 0, -1) if length % n == 0)
            return Blocks(min(block, rows), steps)
    return None


def _up(count: int, unit: int) -> int:
    return pl.cdiv(count, unit) * unit


def largest_size(dtype: Dtype) -> int:
    """The largest H for which the kernel applies, to any number of environments."""
    return max(size for size in range(1, 4096) if plan(2, _FEWEST_ROWS, size, dtype))


def forward(
    launch: Launch, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry, Array, Array]:
    """(h_LNH, last carry, c before each step, tanh of each step's gates)."""
    size, gates = weight_HG.shape
    (h_LNH, c_before_LNH, tanh_LNG), last = _call(
        _forward_kernel, launch, reset_LN, (inputs_LNG,), weight_HG, carry, (size, size, gates)
    )
    return h_LNH, last, c_before_LNH, tanh_LNG


def backward(launch: Launch, kept: LSTMSteps, dh_LNH: Array, dlast: Carry) -> tuple[Array, Carry]:
    """Gradients of the inputs and of the carry before the first step."""
    over_time = (kept.tanh_LNG, kept.c_before_LNH, dh_LNH)
    widths = (kept.tanh_LNG.shape[-1],)
    (dinputs_LNG,), dcarry = _call(
        _backward_kernel, launch, kept.reset_LN, over_time, kept.weight_HG.T, dlast, widths, reverse=True
    )
    return dinputs_LNG, dcarry


def _call(
    kernel: Callable[..., None],
    launch: Launch,
    reset_LN: Array,
    over_time: Sequence[Array],
    weight: Array,
    carry: Carry,
    widths: Sequence[int],
    reverse: bool = False,
) -> tuple[list[Array], Carry]:
    """(results over time, the carry after the last turn) of a kernel over blocks of environments and of time.

    The kernel takes references to: resets, `over_time` [L, N, ...], weights, c and h before; then to its
    results.
    """
    (length, rows) = reset_LN.shape
    size = carry["h"].shape[-1]
    blocks: Blocks = launch.plan
    block, steps = blocks.rows, blocks.steps
    count = pl.cdiv(rows, block)
    turns = length // steps

    def time(turn: Any) -> Any:
        return turns - 1 - turn if reverse else turn

    def steps_of(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((steps, block, width), lambda n, turn: (time(turn), n, 0))

    # The environments of a block in one row: a mask of one column would be padded to 128 columns.
    padded = jnp.pad(reset_LN, ((0, 0), (0, count * block - rows)))
    resets = padded.reshape(length, count, 1, block).astype(jnp.int32)
    of_resets = pl.BlockSpec((steps, None, 1, block), lambda n, turn: (time(turn), n, 0, 0))
    # Its index never changes: it is fetched once and needs no second buffer.
    whole = pl.BlockSpec(weight.shape, lambda n, turn: (0, 0), pipeline_mode=pl.Buffered(1))
    of_rows = pl.BlockSpec((block, size), lambda n, turn: (n, 0))
    state = jax.ShapeDtypeStruct((rows, size), jnp.float32)
    *results, c, h = pl.pallas_call(
        partial(kernel, kernel_precision(launch.dtype, "bfloat16")),
        grid=(count, turns),
        in_specs=[of_resets, *(steps_of(x.shape[-1]) for x in over_time), whole, of_rows, of_rows],
        out_specs=[*(steps_of(width) for width in widths), of_rows, of_rows],
        out_shape=[*(jax.ShapeDtypeStruct((length, rows, n), jnp.float32) for n in widths), state, state],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=launch.interpret,
        name=kernel.__name__.strip("_"),
    )(resets, *over_time, weight.astype(launch.dtype), carry["c"], carry["h"])
    return results, {"c": c, "h": h}


def _dot(a: Array, weight: Array, precision: jax.lax.Precision) -> Array:
    return jnp.dot(a.astype(weight.dtype), weight, precision=precision, preferred_element_type=jnp.float32)


def _mask_carry(carry: Carry, reset_1N: Array) -> Carry:
    """Selects instead of multiplying, as in `recurrent_scan`."""
    reset_N1 = reset_1N.T != 0
    return jax.tree.map(lambda x: jnp.where(reset_N1, 0.0, x), carry)


def _forward_kernel(
    precision: jax.lax.Precision,
    reset_L1N: Any,
    inputs_LNG: Any,
    weight_HG: Any,
    c_first_NH: Any,
    h_first_NH: Any,
    h_LNH: Any,
    c_before_LNH: Any,
    tanh_LNG: Any,
    c_NH: Any,
    h_NH: Any,
) -> None:
    """One turn. The last two results, the carry, stay in memory until the block of environments changes."""

    @pl.when(pl.program_id(1) == 0)
    def _begin() -> None:
        c_NH[...], h_NH[...] = c_first_NH[...], h_first_NH[...]

    def step(t: Array, carry: Carry) -> Carry:
        before = _mask_carry(carry, reset_L1N[t])
        recurrent = _dot(before["h"], weight_HG[...], precision)
        after, (tanh, _) = LSTM.forward(inputs_LNG[t], recurrent, before)
        h_LNH[t], c_before_LNH[t], tanh_LNG[t] = after["h"], before["c"], tanh
        return after

    carry = jax.lax.fori_loop(0, h_LNH.shape[0], step, {"c": c_NH[...], "h": h_NH[...]})
    c_NH[...], h_NH[...] = carry["c"], carry["h"]


def _backward_kernel(
    precision: jax.lax.Precision,
    reset_L1N: Any,
    tanh_LNG: Any,
    c_before_LNH: Any,
    dh_LNH: Any,
    weight_GH: Any,
    dc_last_NH: Any,
    dh_last_NH: Any,
    dinputs_LNG: Any,
    dc_NH: Any,
    dh_NH: Any,
) -> None:
    """One turn backwards in time; the gradient of the carry stays in memory as the carry does."""
    steps = dh_LNH.shape[0]

    @pl.when(pl.program_id(1) == 0)
    def _begin() -> None:
        dc_NH[...], dh_NH[...] = dc_last_NH[...], dh_last_NH[...]

    def step(done: Array, dcarry: Carry) -> Carry:
        t = steps - 1 - done
        tanh = tanh_LNG[t]
        c_before = c_before_LNH[t]
        gradient = {"c": dcarry["c"], "h": dcarry["h"] + dh_LNH[t]}
        kept = (tanh, lstm_tanh_c(lstm_gates(tanh), c_before))
        dinputs, _, dbefore = lstm_backward(kept, {"c": c_before}, gradient)
        dinputs_LNG[t] = dinputs
        dbefore = {"c": dbefore["c"], "h": _dot(dinputs, weight_GH[...], precision)}
        return _mask_carry(dbefore, reset_L1N[t])

    dcarry = jax.lax.fori_loop(0, steps, step, {"c": dc_NH[...], "h": dh_NH[...]})
    dc_NH[...], dh_NH[...] = dcarry["c"], dcarry["h"]
