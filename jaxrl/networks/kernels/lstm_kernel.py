"""The LSTM over time as a TPU kernel that keeps the recurrent weights and the carry on the chip.

A scan compiles to separate operations for every step. Here one kernel holds the loop over time: a block of
environments goes through all steps while weights and carry stay in vector memory. Only inputs, outputs and
what the backward pass needs are moved, overlapped with computation. The weight gradient is one matrix product
over all steps outside the kernel, as in `recurrent_scan`, which computes the same where the kernel does not
apply.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxrl.networks.kernels.cells import LSTM, Carry, lstm_backward, lstm_gates
from jaxrl.networks.kernels.products import weight_gradient
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan, scan_backward, scan_forward
from jaxrl.types import Array, PyTree

Dtype = Any

# Budget of vector memory: by default libtpu gives a kernel 16 MiB on every generation.
_MEMORY = 14 * 2**20
# With 256 rows a v5e already computes for as long as it waits for memory, so larger blocks gain nothing. Many
# blocks of few rows would load the weights into the matrix units more often than a scan does.
_MOST_ROWS, _FEWEST_ROWS = 256, 64
# Turns shorter than the sequence, so that copies of one overlap with computation of another.
_MOST_STEPS = 16
_SUBLANES, _LANES = 8, 128  # rows and columns of a register; arrays in vector memory are padded to them
# Float32 arrays [rows, H] in vector memory. Ten of each step (four gates twice, two others) and four of the
# carry are there twice, as one is copied while the other is used; intermediates once.
_OF_STEP, _OF_CARRY, _INTERMEDIATE = 2 * 10, 2 * 4, 16


@dataclass(frozen=True)
class Blocks:
    """Environments (`rows`) and time steps that one turn of the kernel's grid computes."""

    rows: int
    steps: int


def plan(length: int, rows: int, size: int, dtype: Dtype) -> Blocks | None:
    """Chooses the kernel's blocks; None where the kernel does not apply.

    A single step has no loop to put into a kernel, and the weights must fit beside a block of environments.

    Args:
      length: time steps.
      rows: environments.
      size: H.
      dtype: operands of the matrix products.
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


_INTERPRETED = contextvars.ContextVar("interpreted", default=False)


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Programs traced in the block interpret the kernel on any platform, slowly: for tests."""
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def runs_on(platform: str) -> bool:
    """Whether programs for the platform use the kernel; others use the scan."""
    return platform == "tpu" or _INTERPRETED.get()


def lstm_sequence(
    dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry]:
    """`recurrent_scan` of an LSTM: by the kernel, where `plan` has one and the program is for a TPU."""
    length, rows, gates = inputs_LNG.shape
    blocks = plan(length, rows, gates // 4, dtype)
    if blocks is None:
        return recurrent_scan(LSTM, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    how = _How(blocks, jnp.dtype(dtype), _INTERPRETED.get())
    return _sequence(how, weight_HG, inputs_LNG, carry, reset_LN)


@dataclass(frozen=True)
class _How:
    blocks: Blocks
    dtype: Dtype
    interpret: bool

    def run(self, kernel: Callable[..., PyTree], scan: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """Calls `kernel` in programs for TPUs and `scan`, which computes the same, in others."""
        kernel, scan = partial(kernel, self), partial(scan, self.dtype)
        if self.interpret:
            return kernel(*arguments)
        return jax.lax.platform_dependent(*arguments, tpu=kernel, default=scan)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sequence(
    how: _How, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry]:
    return _forward(how, weight_HG, inputs_LNG, carry, reset_LN)[0]


def _forward(
    how: _How, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[tuple[Array, Carry], PyTree]:
    h_LNH, last, c_before_LNH, tanh_LNG = how.run(
        _forward_by_kernel, _forward_by_scan, weight_HG, inputs_LNG, carry, reset_LN
    )
    return (h_LNH, last), (weight_HG, reset_LN, carry["h"], h_LNH, c_before_LNH, tanh_LNG)


def _backward(how: _How, residuals: PyTree, cotangents: PyTree) -> tuple[PyTree, ...]:
    weight_HG, reset_LN, h_NH, h_LNH, c_before_LNH, tanh_LNG = residuals
    h_before_LNH = jnp.concatenate([h_NH[None], h_LNH[:-1]])
    h_before_LNH = jnp.where(reset_LN[..., None], 0.0, h_before_LNH)
    before_L = {"c": c_before_LNH, "h": h_before_LNH}
    return *how.run(
        _backward_by_kernel, _backward_by_scan, weight_HG, reset_LN, before_L, tanh_LNG, *cotangents
    ), None


_sequence.defvjp(_forward, _backward)


def _forward_by_scan(
    dtype: Dtype, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry, Array, Array]:
    h_LNH, last, kept = scan_forward(LSTM, dtype, weight_HG, inputs_LNG, carry, reset_LN)
    _, _, before_L, (tanh_LNG, _) = kept
    return h_LNH, last, before_L["c"], tanh_LNG


def _backward_by_scan(
    dtype: Dtype,
    weight_HG: Array,
    reset_LN: Array,
    before_L: Carry,
    tanh_LNG: Array,
    dh_LNH: Array,
    dlast: Carry,
) -> tuple[Array, Array, Carry]:
    kept_L = (tanh_LNG, _tanh_c(tanh_LNG, before_L["c"]))
    residuals = (weight_HG, reset_LN, before_L, kept_L)
    dweight_HG, dinputs_LNG, dcarry, _ = scan_backward(LSTM, dtype, residuals, (dh_LNH, dlast))
    return dweight_HG, dinputs_LNG, dcarry


def _tanh_c(tanh: Array, c_before: Array) -> Array:
    """tanh of the cell state after a step; recomputed, as storing it costs more on a TPU."""
    i, f, g, _ = lstm_gates(tanh)
    return jnp.tanh(f * c_before + i * g)


def _forward_by_kernel(
    how: _How, weight_HG: Array, inputs_LNG: Array, carry: Carry, reset_LN: Array
) -> tuple[Array, Carry, Array, Array]:
    size, gates = weight_HG.shape
    widths = (size, size, gates)
    (h_LNH, c_before_LNH, tanh_LNG), last = _call(
        _forward_kernel, how, reset_LN, (inputs_LNG,), weight_HG, carry, widths, reverse=False
    )
    return h_LNH, last, c_before_LNH, tanh_LNG


def _backward_by_kernel(
    how: _How,
    weight_HG: Array,
    reset_LN: Array,
    before_L: Carry,
    tanh_LNG: Array,
    dh_LNH: Array,
    dlast: Carry,
) -> tuple[Array, Array, Carry]:
    over_time = (tanh_LNG, before_L["c"], dh_LNH)
    widths = (tanh_LNG.shape[-1],)
    (dinputs_LNG,), dcarry = _call(
        _backward_kernel, how, reset_LN, over_time, weight_HG.T, dlast, widths, reverse=True
    )
    dweight_HG = weight_gradient(before_L["h"].astype(how.dtype), dinputs_LNG.astype(how.dtype))
    return dweight_HG, dinputs_LNG, dcarry


def _call(
    kernel: Callable[..., None],
    how: _How,
    reset_LN: Array,
    over_time: Sequence[Array],
    weight: Array,
    carry: Carry,
    widths: Sequence[int],
    reverse: bool,
) -> tuple[list[Array], Carry]:
    """Runs a kernel over blocks of environments and, for each, over blocks of time.

    Args:
      kernel: takes references to: resets, `over_time`, weights, c and h before; then to its results.
      how: blocks and dtype.
      reset_LN: bool.
      over_time: float32 arrays [L, N, ...].
      weight: of the matrix products.
      carry: c and h before the first turn.
      widths: of the results over time.
      reverse: whether time runs backwards.

    Returns:
      (results over time, the carry after the last turn).
    """
    (length, rows), size = reset_LN.shape, carry["h"].shape[-1]
    block, steps = how.blocks.rows, how.blocks.steps
    count, turns = pl.cdiv(rows, block), length // steps

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
        partial(kernel, _precision(how.dtype)),
        grid=(count, turns),
        in_specs=[of_resets, *(steps_of(x.shape[-1]) for x in over_time), whole, of_rows, of_rows],
        out_specs=[*(steps_of(width) for width in widths), of_rows, of_rows],
        out_shape=[*(jax.ShapeDtypeStruct((length, rows, n), jnp.float32) for n in widths), state, state],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=how.interpret,
        name=kernel.__name__.strip("_"),
    )(resets, *over_time, weight.astype(how.dtype), carry["c"], carry["h"])
    return results, {"c": c, "h": h}


def _precision(dtype: Dtype) -> jax.lax.Precision:
    """Kernels have two precisions; `JAX_DEFAULT_MATMUL_PRECISION` is rounded up to one of them."""
    asked = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    low = dtype != jnp.float32 or asked in (None, "default", "fastest", "bfloat16")
    return jax.lax.Precision.DEFAULT if low else jax.lax.Precision.HIGHEST


def _dot(a: Array, weight: Array, precision: jax.lax.Precision) -> Array:
    return jnp.dot(a.astype(weight.dtype), weight, precision=precision, preferred_element_type=jnp.float32)


def _masked(carry: Carry, reset_1N: Array) -> Carry:
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
        before = _masked(carry, reset_L1N[t])
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
        tanh, c_before = tanh_LNG[t], c_before_LNH[t]
        gradient = {"c": dcarry["c"], "h": dcarry["h"] + dh_LNH[t]}
        dinputs, _, dbefore = lstm_backward((tanh, _tanh_c(tanh, c_before)), {"c": c_before}, gradient)
        dinputs_LNG[t] = dinputs
        dbefore = {"c": dbefore["c"], "h": _dot(dinputs, weight_GH[...], precision)}
        return _masked(dbefore, reset_L1N[t])

    dcarry = jax.lax.fori_loop(0, steps, step, {"c": dc_NH[...], "h": dh_NH[...]})
    dc_NH[...], dh_NH[...] = dcarry["c"], dcarry["h"]
