"""Feed-forward trunks of dense layers, with their heads, as one kernel for each direction on NVIDIA GPUs.

Layer by layer, each product and each activation is a kernel of its own, and writes its output for the next
one to read. Other platforms compute the layers one after the other.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.networks.kernels import products
from jaxrl.networks.kernels.dense_gpu_kernels import (
    ROWS,
    WARPS,
    DenseWork,
    Shape,
    backward_kernel,
    forward_kernel,
    padded,
)
from jaxrl.networks.kernels.products import kernel_precision, matmul
from jaxrl.types import Array, PyTree

Dtype = Any
Layers = tuple[tuple[Array, Array], ...]
Activation = Callable[[Array], Array]

# The largest side of a matrix; blocks and gradients of larger ones do not fit into registers.
_MOST_UNITS = 128
# Registers of a thread for the gradients of weights, which stay there over all rows of a program.
_MOST_REGISTERS = 48
_THREADS_OF_WARP = 32
# Programs of a backward pass, each of which adds up the gradients of its rows: two for each multiprocessor of
# a large GPU. More of them would write more sums.
_PROGRAMS = 256
# Elements of an array are counted in 32 bits.
_MOST_ELEMENTS = 2**31 - 1
_INTERPRETED: contextvars.ContextVar[bool] = contextvars.ContextVar("interpreted", default=False)


@contextlib.contextmanager
def interpret() -> Iterator[None]:
    """Programs traced in the block interpret the kernels on any platform, slowly: for tests."""
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def interprets() -> bool:
    """True inside such a block."""
    return _INTERPRETED.get()


def dense_heads(activation: Activation, dtype: Dtype, x: Array, trunks: Sequence[Trunk]) -> list[list[Array]]:
    """float32[..., N] of the heads on each trunk, by a kernel in programs for NVIDIA GPUs if they fit it.

    Args:
      activation: after each hidden layer.
      dtype: of the hidden layers' operands and outputs; heads compute in float32.
      x: [..., K], the input of all trunks.
    """
    leading = x.shape[:-1]
    x_NK = x.reshape(-1, x.shape[-1])
    if applies(len(x_NK), list(map(shape_of, trunks))):
        outputs = _heads(How(activation, jnp.dtype(dtype), _INTERPRETED.get()), x_NK, tuple(trunks))
    else:
        outputs = by_layers(activation, dtype, x_NK, trunks)
    return jax.tree.map(lambda y: y.reshape(*leading, y.shape[-1]), outputs)


def by_layers(
    activation: Activation, dtype: Dtype, x_NK: Array, trunks: Sequence[Trunk]
) -> list[list[Array]]:
    """The same, one layer after the other, as `networks.layers.Dense` computes them."""
    found = []
    for hidden, heads in trunks:
        h = x_NK
        for weight, bias in hidden:
            z = matmul(h.astype(dtype), weight.astype(dtype)) + bias[None]
            h = activation(z.astype(dtype))
        h = h.astype(jnp.float32)
        found.append([matmul(h, weight) + bias[None] for weight, bias in heads])
    return found


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _heads(how: How, x_NK: Array, trunks: tuple[Trunk, ...]) -> list[list[Array]]:
    kernel = partial(forward, how)
    if how.interpret:
        return kernel(x_NK, trunks)
    layers = partial(by_layers, how.activation, how.dtype)
    return jax.lax.platform_dependent(x_NK, trunks, cuda=kernel, default=layers)


def _forward(
    how: How, x_NK: Array, trunks: tuple[Trunk, ...]
) -> tuple[list[list[Array]], tuple[Array, tuple[Trunk, ...]]]:
    return _heads(how, x_NK, trunks), (x_NK, trunks)


def _backward(
    how: How, saved: tuple[Array, tuple[Trunk, ...]], gradients: list[list[Array]]
) -> tuple[Array, tuple[Trunk, ...]]:
    def kernels(x_NK: Array, trunks: tuple[Trunk, ...], gradients: list[list[Array]]) -> PyTree:
        found = [
            backward(how, x_NK, trunk, of_heads) for trunk, of_heads in zip(trunks, gradients, strict=True)
        ]
        return sum(dx_NK for dx_NK, _ in found), tuple(trunk for _, trunk in found)

    def layers(x_NK: Array, trunks: tuple[Trunk, ...], gradients: list[list[Array]]) -> PyTree:
        return jax.vjp(partial(by_layers, how.activation, how.dtype), x_NK, trunks)[1](gradients)

    if how.interpret:
        return kernels(*saved, gradients)
    return jax.lax.platform_dependent(*saved, gradients, cuda=kernels, default=layers)


_heads.defvjp(_forward, _backward)


def fault(activation: Activation, dtype: Dtype, hidden_sizes: Sequence[int]) -> str | None:
    """Compares the kernels with the layers for a small input: what is wrong, None if equal up to rounding."""
    rows, inputs, heads = 50, 5, (3, 1)  # some rows are left over whatever the blocks
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    layer = lambda k, n: (normal(k, n) / k**0.5, normal(n))  # noqa: E731
    sizes = (inputs, *hidden_sizes)
    hidden = tuple(layer(k, n) for k, n in pairwise(sizes))
    trunks = [Trunk(hidden, tuple(layer(sizes[-1], n) for n in heads))] * 2
    x_NK = normal(rows, inputs)
    outputs = [[normal(rows, n) for n in heads] for _ in trunks]
    if not applies(rows, list(map(shape_of, trunks))):
        return None  # No program has the kernels.

    def values_and_gradients(run: Callable[..., PyTree]) -> PyTree:
        def compute(x_NK: Array, trunks: PyTree) -> PyTree:
            values, pull = jax.vjp(partial(run, activation, dtype), x_NK, trunks)
            return values, pull(outputs)

        return jax.device_get(jax.jit(compute)(x_NK, trunks))

    return products.fault(
        lambda: values_and_gradients(dense_heads),
        lambda: values_and_gradients(by_layers),
        "do not agree with the layers on this device",
    )


class Trunk(NamedTuple):
    """Float32 (weights [K, N], bias [N]) of hidden layers with activations, and of linear heads on them."""

    hidden: Layers
    heads: Layers


@dataclass(frozen=True)
class How:
    """The way in which kernels compute, see `dense_heads`; or are interpreted, where there is no GPU."""

    activation: Activation
    dtype: Dtype
    interpret: bool


def applies(rows: int, shapes: Sequence[Shape]) -> bool:
    """True if the kernels take `rows` of input through trunks of these shapes."""
    widest = max(size for shape in shapes for layer in shape.layers for size in layer)
    elements = max(sum(padded(inputs) * padded(outputs) for inputs, outputs in x.layers) for x in shapes)
    fits = elements <= _MOST_REGISTERS * WARPS * _THREADS_OF_WARP
    return fits and widest <= _MOST_UNITS and rows * widest <= _MOST_ELEMENTS


def shape_of(trunk: Trunk) -> Shape:
    sizes = lambda layers: tuple(weight.shape for weight, _ in layers)  # noqa: E731
    return Shape(sizes(trunk.hidden), sizes(trunk.heads))


def forward(how: How, x_NK: Array, trunks: Sequence[Trunk]) -> list[list[Array]]:
    """The outputs float32[N, ...] of the heads of each trunk."""
    work = _work(how, len(x_NK), trunks)
    outputs = [width for shape in work.shapes for _, width in shape.heads]
    found = _call(
        forward_kernel,
        work,
        pl.cdiv(work.rows, ROWS),
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
    programs = min(_PROGRAMS, pl.cdiv(work.rows, ROWS))
    # The gradients of each layer's weights, and of its bias behind them: one array and one sum over programs.
    width = max(outputs for _, outputs in shape.layers)
    rows = pl.BlockSpec((pl.squeezed, shape.height + padded(width), padded(width)), lambda n: (n, 0, 0))
    dx_NK, sums = _call(
        backward_kernel,
        work,
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
        rows=rows,
        shapes=tuple(map(shape_of, trunks)),
        activation=how.activation,
        dtype=how.dtype,
        precision=kernel_precision(how.dtype, "tensorfloat32"),
        precision_of_heads=kernel_precision(jnp.float32, "tensorfloat32"),
        interpret=how.interpret,
    )


def _rows_spec(work: DenseWork, width: int) -> pl.BlockSpec:
    """All rows, in whole blocks: the kernel itself leaves out what lies outside of the array."""
    rows = pl.cdiv(work.rows, ROWS) * ROWS
    return pl.BlockSpec((rows, padded(width)), lambda n: (0, 0))


def _call(
    kernel: Callable[..., None],
    work: DenseWork,
    programs: int,
    inputs: Sequence[Array],
    trunks: Sequence[Trunk],
    out_specs: list[pl.BlockSpec],
    out_shape: list[jax.ShapeDtypeStruct],
) -> list[Array]:
    """Runs a kernel that takes `work`, then references to inputs [N, ...], parameters, and its results."""
    parameters = jax.tree.leaves(trunks)
    in_specs = [_rows_spec(work, x.shape[1]) for x in inputs]
    in_specs += [
        pl.BlockSpec(tuple(map(padded, x.shape)), lambda n, rank=x.ndim: (0,) * rank) for x in parameters
    ]
    return pl.pallas_call(
        partial(kernel, work),
        grid=(programs,),
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=work.interpret,
    )(*inputs, *parameters)
