"""The bodies of the LSTM's kernels for NVIDIA GPUs: all steps of one block of environments, in tiles.

`lstm_gpu` chooses the tiles and starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.networks.kernels.cells import gates_of_tanh, lstm_gate_gradients, lstm_tanh_c
from jaxrl.types import Array, PyTree


@dataclass(frozen=True)
class Tiles:
    """The division of the kernel's work; powers of two, except for the count.

    Attributes:
      rows: environments of one program, which has `warps`.
      columns: units of a tile.
      count: tiles that hold all units.
      resident: True if the weights stay in shared memory.
    """

    rows: int
    columns: int
    count: int
    warps: int
    resident: bool


@dataclass(frozen=True)
class KernelWork:
    """The facts of a compiled kernel: steps, environments and units, and how it computes."""

    tiles: Tiles
    length: int
    rows: int
    size: int
    precision: jax.lax.Precision


class _Memory:
    """Reads and writes tiles of arrays whose rows and columns need not fill the last ones."""

    def __init__(self, work: KernelWork) -> None:
        self._tiles = work.tiles
        self._masks = [_mask(work, tile) for tile in range(work.tiles.count)]

    def load(self, ref: Any, tile: int, *leading: Any, gate: int | None = None) -> Array:
        mask = self._masks[tile]
        at = self._index(tile, leading, gate)
        return triton.load(ref.at[at], mask=mask, other=None if mask is None else 0.0)

    def store(self, ref: Any, value: Array, tile: int, *leading: Any, gate: int | None = None) -> None:
        triton.store(ref.at[self._index(tile, leading, gate)], value, mask=self._masks[tile])

    def _index(self, tile: int, leading: tuple[Any, ...], gate: int | None) -> tuple[Any, ...]:
        rows = self._tiles.rows
        columns = self._tiles.columns
        of_gate = () if gate is None else (jnp.int32(gate),)
        return *leading, pl.ds(0, rows), *of_gate, pl.ds(tile * columns, columns)


def _mask(work: KernelWork, tile: int) -> Array | None:
    """The mask of the part of a tile inside the array; None for all of it."""
    tiles = work.tiles
    start = tile * work.tiles.columns
    shape = (tiles.rows, tiles.columns)
    masks: list[Array] = []
    if work.rows % tiles.rows:
        row = pl.program_id(0) * tiles.rows + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        masks.append(row < work.rows)
    if work.size < start + tiles.columns:
        masks.append(start + jax.lax.broadcasted_iota(jnp.int32, shape, 1) < work.size)
    return reduce(jnp.logical_and, masks) if masks else None


def _weights(
    tiles: Tiles, weight_4HH: Any, order: Sequence[tuple[int, int, int]]
) -> Callable[[], Iterator[Array]]:
    """The iterator over tiles of the weights, once per step, in an `order` of (gate, rows, columns)."""

    def load(gate: int, row: int, column: int) -> Array:
        n = tiles.columns
        return triton.load(weight_4HH.at[jnp.int32(gate), pl.ds(row * n, n), pl.ds(column * n, n)])

    if tiles.resident:
        held = [load(*at) for at in order]
        return lambda: iter(held)

    def stream() -> Iterator[Array]:
        # One tile is on its way during the product of the one before.
        ahead = load(*order[0])
        for at in order[1:]:
            current = ahead
            ahead = load(*at)
            yield current
        yield ahead

    return stream


def _dot(a: Array, b: Array, precision: jax.lax.Precision) -> Array:
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)


def _mask_carry(carry: PyTree, rows: int, reset_LN: Any, t: Array) -> PyTree:
    """Selects instead of multiplying, as in `recurrent_scan`."""
    reset_N1 = (triton.load(reset_LN.at[t, pl.ds(0, rows)]) != 0)[:, None]
    return jax.tree.map(lambda x: jnp.where(reset_N1, 0.0, x), carry)


def forward_kernel(
    work: KernelWork,
    reset_LN: Any,
    inputs_LN4H: Any,
    weight_4HH: Any,
    c_first_NH: Any,
    h_first_NH: Any,
    h_LNH: Any,
    c_before_LNH: Any,
    tanh_LN4H: Any,
    c_NH: Any,
    h_NH: Any,
) -> None:
    """All steps of one block of environments; c and h are lists of tiles."""
    memory = _Memory(work)
    count = range(work.tiles.count)
    weights = _weights(
        work.tiles, weight_4HH, [(gate, k, j) for j in count for gate in range(4) for k in count]
    )

    def step(t: Array, carry: PyTree) -> PyTree:
        c, h = _mask_carry(carry, work.tiles.rows, reset_LN, t)
        operands = [x.astype(weight_4HH.dtype) for x in h]
        weight = weights()
        c_after: list[Array] = []
        h_after: list[Array] = []
        for j in count:
            # Loaded before the products, which take as long as memory does to answer.
            inputs = [memory.load(inputs_LN4H, j, t, gate=gate) for gate in range(4)]
            tanh: list[Array] = []
            for gate in range(4):
                recurrent = jnp.zeros_like(inputs[gate])
                for operand in operands:
                    recurrent += _dot(operand, next(weight), work.precision)
                # sigmoid(x) = tanh(x / 2) / 2 + 1/2, as in `LSTM.forward`.
                tanh.append(jnp.tanh((1.0 if gate == 2 else 0.5) * (inputs[gate] + recurrent)))
                memory.store(tanh_LN4H, tanh[gate], j, t, gate=gate)
            i, f, g, o = gates_of_tanh(*tanh)
            memory.store(c_before_LNH, c[j], j, t)
            c_after.append(f * c[j] + i * g)
            h_after.append(o * jnp.tanh(c_after[j]))
            memory.store(h_LNH, h_after[j], j, t)
        return c_after, h_after

    carry = [memory.load(c_first_NH, j) for j in count], [memory.load(h_first_NH, j) for j in count]
    c, h = jax.lax.fori_loop(0, work.length, step, carry)
    for j in count:
        memory.store(c_NH, c[j], j)
        memory.store(h_NH, h[j], j)


def backward_kernel(
    work: KernelWork,
    reset_LN: Any,
    tanh_LN4H: Any,
    c_before_LNH: Any,
    dh_LNH: Any,
    weight_4HH: Any,
    dc_last_NH: Any,
    dh_last_NH: Any,
    dinputs_LN4H: Any,
    dc_NH: Any,
    dh_NH: Any,
) -> None:
    """All steps of one block of environments, backwards in time."""
    memory = _Memory(work)
    count = range(work.tiles.count)
    weights = _weights(
        work.tiles, weight_4HH, [(gate, j, k) for j in count for gate in range(4) for k in count]
    )

    def step(done: Array, carry: PyTree) -> PyTree:
        t = work.length - 1 - done
        dc_after, dh_after = carry
        weight = weights()
        dc: list[Array] = []
        dh = [jnp.zeros_like(x) for x in dh_after]
        for j in count:
            gates = gates_of_tanh(*(memory.load(tanh_LN4H, j, t, gate=gate) for gate in range(4)))
            c_before = memory.load(c_before_LNH, j, t)
            gradient = {"c": dc_after[j], "h": dh_after[j] + memory.load(dh_LNH, j, t)}
            tanh_c = lstm_tanh_c(gates, c_before)
            dinputs, dc_before = lstm_gate_gradients(gates, tanh_c, c_before, gradient)
            dc.append(dc_before)
            for gate in range(4):
                memory.store(dinputs_LN4H, dinputs[gate], j, t, gate=gate)
                operand = dinputs[gate].astype(weight_4HH.dtype)
                # Summed at once: Triton turns a product and a sum into one operation in the place of the sum,
                # and keeps the weights of all that wait in shared memory.
                dh = [x + _dot(operand, next(weight), work.precision) for x in dh]
        return _mask_carry((dc, dh), work.tiles.rows, reset_LN, t)

    carry = [memory.load(dc_last_NH, j) for j in count], [memory.load(dh_last_NH, j) for j in count]
    dc, dh = jax.lax.fori_loop(0, work.length, step, carry)
    for j in count:
        memory.store(dc_NH, dc[j], j)
        memory.store(dh_NH, dh[j], j)
