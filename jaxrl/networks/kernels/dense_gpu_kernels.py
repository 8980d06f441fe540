"""The bodies of the kernels for dense trunks on NVIDIA GPUs, compiled by Triton.

A program of a kernel's grid takes blocks of rows through all layers of the trunks, whose outputs stay in
registers; the backward pass computes them again. `dense_kernel` starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.types import Array

ROWS, WARPS = 32, 8  # of a block, powers of two
# The smallest side of a matrix in Triton's products.
_FEWEST = 16
# (weights, bias) of a layer, in registers or as references.
_Layer = tuple[Any, Any]


@dataclass(frozen=True)
class Shape:
    """The sizes (inputs, outputs) of a trunk's hidden layers and of its heads."""

    hidden: tuple[tuple[int, int], ...]
    heads: tuple[tuple[int, int], ...]

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Of hidden layers, then of heads."""
        return self.hidden + self.heads

    @property
    def starts(self) -> list[int]:
        """The first row of each layer in an array of the gradients of all: weights, then the bias."""
        return [sum(inputs + 1 for inputs, _ in self.layers[:i]) for i in range(len(self.layers))]

    @property
    def height(self) -> int:
        """The rows of that array."""
        return sum(inputs + 1 for inputs, _ in self.layers)


@dataclass(frozen=True)
class DenseWork:
    """The facts of a compiled kernel.

    Attributes:
      dtype: of the hidden layers' operands and outputs.
      precision: of their products.
      precision_of_heads: of the products of heads, in float32.
    """

    rows: int
    shapes: tuple[Shape, ...]
    activation: Callable[[Array], Array]
    dtype: Any
    precision: jax.lax.Precision
    precision_of_heads: jax.lax.Precision
    interpret: bool

    @property
    def inputs(self) -> int:
        """K of the input."""
        return self.shapes[0].layers[0][0]


def padded(size: int) -> int:
    """The side of a matrix in registers that holds `size` rows or columns."""
    return max(pl.next_power_of_2(size), _FEWEST)


def forward_kernel(work: DenseWork, x_NK: Any, *references: Any) -> None:
    """One block of rows; references are to the parameters of all trunks, then to the outputs of all heads."""
    count = sum(2 * len(shape.layers) for shape in work.shapes)
    parameters = iter(references[:count])
    outputs = iter(references[count:])
    start = pl.program_id(0) * ROWS
    x = _load_rows(work, x_NK, start, work.inputs).astype(work.dtype)
    for shape in work.shapes:
        h = x
        # Weights are loaded one layer after the other: all at once are more than the registers hold.
        for sizes in shape.hidden:
            h, _ = _hidden_layer(work, h, *_load_layer(parameters, sizes, work.dtype))
        h = h.astype(jnp.float32)
        for sizes in shape.heads:
            weight, bias = _load_layer(parameters, sizes, jnp.float32)
            y = _dot_of_head(work, h, weight) + bias[None]
            _store_rows(work, next(outputs), y, start, sizes[1])


def backward_kernel(work: DenseWork, x_NK: Any, *references: Any) -> None:
    """Some blocks of rows of one trunk.

    References are to the gradients of its heads' outputs, to its parameters, to the gradients of its input,
    and to the sums of the gradients of its parameters over these rows.
    """
    (shape,) = work.shapes
    left = iter(references)
    gradients = [next(left) for _ in shape.heads]
    parameters = [next(left) for _ in range(2 * len(shape.layers))]
    dx_NK, sums = left
    program = pl.program_id(0)
    programs = pl.num_programs(0)

    def weights_of(layer: int, dtype: Any) -> Array:
        # Loaded again at each use: kept until then, they take too many registers and too much shared memory.
        return _load_weights(parameters[2 * layer], shape.layers[layer], dtype)

    def block(turn: Array, totals: list[_Layer]) -> list[_Layer]:
        start = (program + turn * programs) * ROWS
        h = _load_rows(work, x_NK, start, work.inputs).astype(work.dtype)
        passed = []
        for layer, sizes in enumerate(shape.hidden):
            bias = _load_bias(parameters[2 * layer + 1], sizes)
            after, pull = _hidden_layer(work, h, weights_of(layer, work.dtype), bias)
            passed.append((h, pull))
            h = after
        h = h.astype(jnp.float32)
        of_heads: list[_Layer] = []
        dh = jnp.zeros(h.shape, jnp.float32)
        for layer, dy_NF in enumerate(gradients, len(shape.hidden)):
            dy = _load_rows(work, dy_NF, start, shape.layers[layer][1])
            of_heads.append((_dot_of_head(work, h, dy, trans_a=True), jnp.sum(dy, 0)))
            dh += _dot_of_head(work, dy, weights_of(layer, jnp.float32), trans_b=True)
        of_hidden: list[_Layer] = []
        for layer, (inputs, pull) in reversed(list(enumerate(passed))):
            dz = pull(dh)
            of_hidden.insert(0, (_dot(work, inputs, dz, trans_a=True), jnp.sum(dz.astype(jnp.float32), 0)))
            dh = _dot(work, dz, weights_of(layer, work.dtype), trans_b=True)
        _store_rows(work, dx_NK, dh, start, work.inputs)
        found = of_hidden + of_heads
        return [(a + c, b + d) for (a, b), (c, d) in zip(totals, found, strict=True)]

    blocks = pl.cdiv(work.rows, ROWS)
    zeros = [_zeros(sizes) for sizes in shape.layers]
    totals = jax.lax.fori_loop(0, pl.cdiv(blocks - program, programs), block, zeros)
    for first, (inputs, outputs), (dweight, dbias) in zip(shape.starts, shape.layers, totals, strict=True):
        height, width = dweight.shape
        at = sums.at[pl.ds(first, height), pl.ds(0, width)]
        triton.store(at, dweight, mask=_mask((height, width), (inputs, outputs)))
        at = sums.at[jnp.int32(first + inputs), pl.ds(0, width)]
        triton.store(at, dbias, mask=_mask((width,), (outputs,)))


def _hidden_layer(
    work: DenseWork, h: Array, weight: Array, bias: Array
) -> tuple[Array, Callable[[Array], Array]]:
    """(the output, its float32 gradient -> the gradient of what the activation sees); in `dtype`."""
    z = (_dot(work, h, weight) + bias[None]).astype(work.dtype)
    # Triton has the functions of activations for float32 alone.
    y, pull = jax.vjp(work.activation, z.astype(jnp.float32))
    round_off = lambda x: x.astype(work.dtype)  # noqa: E731
    return round_off(y), lambda dy: round_off(pull(round_off(dy).astype(jnp.float32))[0])


def _dot(work: DenseWork, a: Array, b: Array, **transposed: bool) -> Array:
    return triton.dot(a, b, precision=work.precision, **transposed)


def _dot_of_head(work: DenseWork, a: Array, b: Array, **transposed: bool) -> Array:
    return triton.dot(a, b, precision=work.precision_of_heads, **transposed)


def _zeros(sizes: tuple[int, int]) -> _Layer:
    height, width = map(padded, sizes)
    return jnp.zeros((height, width), jnp.float32), jnp.zeros(width, jnp.float32)


def _load_layer(references: Iterator[Any], sizes: tuple[int, int], dtype: Any) -> _Layer:
    """(weights in `dtype`, bias in float32), with 0 outside of the arrays."""
    return _load_weights(next(references), sizes, dtype), _load_bias(next(references), sizes)


def _load_weights(ref: Any, sizes: tuple[int, int], dtype: Any) -> Array:
    return _load(ref, (padded(sizes[0]), padded(sizes[1])), sizes).astype(dtype)


def _load_bias(ref: Any, sizes: tuple[int, int]) -> Array:
    return _load(ref, (padded(sizes[1]),), sizes[1:])


def _load_rows(work: DenseWork, ref: Any, start: Array, width: int) -> Array:
    """A block of rows of an array [N, width], with 0 outside of it."""
    return _load(ref, (ROWS, padded(width)), (work.rows, width), start)


def _store_rows(work: DenseWork, ref: Any, value: Array, start: Array, width: int) -> None:
    at = ref.at[pl.ds(start, value.shape[0]), pl.ds(0, value.shape[1])]
    triton.store(at, value.astype(ref.dtype), mask=_mask(value.shape, (work.rows, width), start))


def _load(ref: Any, shape: tuple[int, ...], limits: tuple[int, ...], start: Any = 0) -> Array:
    mask = _mask(shape, limits, start)
    at = ref.at[(pl.ds(start, shape[0]), *(pl.ds(0, size) for size in shape[1:]))]
    return triton.load(at, mask=mask, other=None if mask is None else 0.0)


def _mask(shape: tuple[int, ...], limits: tuple[int, ...], start: Any = 0) -> Array | None:
    """The part of a block, which begins at row `start`, inside an array; None for all of it."""
    masks: list[Array] = []
    for axis, (size, limit) in enumerate(zip(shape, limits, strict=True)):
        if limit % size:
            index = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
            masks.append((index + start if axis == 0 else index) < limit)
    return reduce(jnp.logical_and, masks) if masks else None
