"""Dense trunks with linear heads as one kernel for each direction on NVIDIA GPUs, compiled by Triton.

A program of the kernel's grid takes a block of rows through all layers of the trunks, whose outputs stay in
registers; the backward pass computes them again. `dense_kernel` decides where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.networks.kernels.dense_gpu_kernels import (
    DenseWork,
    RowBlocks,
    Shape,
    backward_kernel,
    forward_kernel,
    padded,
)
from jaxrl.networks.kernels.products import kernel_precision
from jaxrl.types import Array

Dtype = Any
Layers = tuple[tuple[Array, Array], ...]

# The largest side of a matrix; blocks and gradients of larger ones do not fit into registers.
_MOST_UNITS = 128
# Registers of a thread for the gradients of weights, which stay there over all rows of a program.
_MOST_REGISTERS = 48
_BLOCKS = RowBlocks(rows=32, warps=8)
_THREADS_OF_WARP = 32
# Programs of a backward pass, each of which adds up the gradients of its rows: two for each multiprocessor of
# a large GPU. More of them would write more sums.
_PROGRAMS = 256
# Elements of an array are counted in 32 bits.
_MOST_ELEMENTS = 2**31 - 1


class Trunk(NamedTuple):
    """Parameters, float32, as (weights [K, N], bias [N]).

    Attributes:
      hidden: the layers, one on the other, each with an activation.
      heads: linear layers on the last of them.
    """

    hidden: Layers
    heads: Layers


@dataclass(frozen=True)
class How:
    """The way in which kernels compute.

    Attributes:
      blocks: the division of the work.
      activation: after each hidden layer.
      dtype: of the hidden layers' operands and outputs; heads compute in float32.
      interpret: True interprets the kernels.
    """

    blocks: RowBlocks
    activation: Callable[[Array], Array]
    dtype: Dtype
    interpret: bool


def plan(rows: int, shapes: Sequence[Shape]) -> RowBlocks | None:
    """Chooses the blocks; None if the kernels do not apply.

    Args:
      rows: N of the input.
      shapes: of the trunks.
    """
    widest = max(size for shape in shapes for layer in shape.layers for size in layer)
    if widest > _MOST_UNITS or rows * widest > _MOST_ELEMENTS:
        return None
    threads = _BLOCKS.warps * _THREADS_OF_WARP
    for shape in shapes:
        elements = sum(padded(inputs) * padded(outputs) for inputs, outputs in shape.layers)
        if elements > _MOST_REGISTERS * threads:
            return None
    return _BLOCKS


def shape_of(trunk: Trunk) -> Shape:
    """The sizes of the trunk's layers."""
    sizes = lambda layers: tuple(weight.shape for weight, _ in layers)  # noqa: E731
    return Shape(sizes(trunk.hidden), sizes(trunk.heads))


def forward(how: How, x_NK: Array, trunks: Sequence[Trunk]) -> list[list[Array]]:
    """The outputs float32[N, ...] of the heads of each trunk."""
    work = _work(how, len(x_NK), trunks)
    outputs = [width for shape in work.shapes for _, width in shape.heads]
    found = _call(
        forward_kernel,
        work,
        how,
        pl.cdiv(work.rows, how.blocks.rows),
        [x_NK],
        trunks,
        [_rows_spec(work, width) for width in outputs],
        [jax.ShapeDtypeStruct((work.rows, width), jnp.float32) for width in outputs],
    )
    left = iter(found)
    return [[next(left) for _ in shape.heads] for shape in work.shapes]


def backward(how: How, x_NK: Array, trunk: Trunk, gradients: Sequence[Array]) -> tuple[Array, Trunk]:
    """Gradients of the input, in its dtype, and of one trunk, from those of the outputs of its heads."""
    work = _work(how, len(x_NK), [trunk])
    (shape,) = work.shapes
    programs = min(_PROGRAMS, pl.cdiv(work.rows, how.blocks.rows))
    # The gradients of each layer's weights, and of its bias behind them: one array and one sum over programs.
    width = max(outputs for _, outputs in shape.layers)
    rows = pl.BlockSpec((pl.squeezed, shape.height + padded(width), padded(width)), lambda n: (n, 0, 0))
    dx_NK, sums = _call(
        backward_kernel,
        work,
        how,
        programs,
        [x_NK, *gradients],
        [trunk],
        [_rows_spec(work, x_NK.shape[1]), rows],
        [
            jax.ShapeDtypeStruct(x_NK.shape, x_NK.dtype),
            jax.ShapeDtypeStruct((programs, shape.height, width), jnp.float32),
        ],
    )
    total = sums.sum(0)
    layers = []
    for first, (inputs, outputs) in zip(shape.starts, shape.layers, strict=True):
        part = total[first : first + inputs + 1, :outputs]
        layers.append((part[:inputs], part[inputs]))
    count = len(shape.hidden)
    return dx_NK, Trunk(tuple(layers[:count]), tuple(layers[count:]))


def _work(how: How, rows: int, trunks: Sequence[Trunk]) -> DenseWork:
    return DenseWork(
        blocks=how.blocks,
        rows=rows,
        shapes=tuple(map(shape_of, trunks)),
        activation=how.activation,
        dtype=how.dtype,
        precision=kernel_precision(how.dtype, "tensorfloat32"),
        precision_of_heads=kernel_precision(jnp.float32, "tensorfloat32"),
    )


def _rows_spec(work: DenseWork, width: int) -> pl.BlockSpec:
    """All rows, in whole blocks: the kernel itself leaves out what lies outside of the array."""
    rows = pl.cdiv(work.rows, work.blocks.rows) * work.blocks.rows
    return pl.BlockSpec((rows, padded(width)), lambda n: (0, 0))


def _call(
    kernel: Callable[..., None],
    work: DenseWork,
    how: How,
    programs: int,
    inputs: Sequence[Array],
    trunks: Sequence[Trunk],
    out_specs: list[pl.BlockSpec],
    out_shape: list[jax.ShapeDtypeStruct],
) -> list[Array]:
    """Runs a kernel that takes `work`, then references to inputs [N, ...], parameters, and its results."""
    parameters = jax.tree.leaves(trunks)
    in_specs = [_rows_spec(work, x.shape[1]) for x in inputs]
    in_specs += [pl.BlockSpec(tuple(map(padded, x.shape)), partial(_first, x.ndim)) for x in parameters]
    return pl.pallas_call(
        partial(kernel, work),
        grid=(programs,),
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=triton.CompilerParams(num_warps=work.blocks.warps, num_stages=1),
        interpret=how.interpret,
    )(*inputs, *parameters)


def _first(rank: int, n: Array) -> tuple[int, ...]:
    return (0,) * rank
