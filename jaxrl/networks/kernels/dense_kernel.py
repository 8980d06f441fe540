"""Feed-forward trunks of dense layers, with their heads, as one kernel for each direction on NVIDIA GPUs.

Layer by layer, each product and each activation is a kernel of its own, and writes its output for the next
one to read. Other platforms compute the layers one after the other.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.kernels import dense_gpu
from jaxrl.networks.kernels.dense_gpu import How, Trunk
from jaxrl.networks.kernels.dense_gpu_kernels import RowBlocks
from jaxrl.networks.kernels.products import matmul
from jaxrl.types import Array, PyTree

Dtype = Any
Activation = Callable[[Array], Array]

# How far values and gradients may be from those of the layers, of the largest: bfloat16 over some layers.
_ROUNDING = 0.05
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
    """The outputs of the heads on each trunk, by a kernel in programs for NVIDIA GPUs if they fit it.

    Args:
      activation: after each hidden layer.
      dtype: of the hidden layers' operands and outputs; heads compute in float32.
      x: [..., K], the input of all trunks.
      trunks: their parameters.

    Returns:
      float32[..., N] of each head, by trunk.
    """
    leading = x.shape[:-1]
    x_NK = x.reshape(-1, x.shape[-1])
    blocks = _plan(x_NK, trunks)
    if blocks is None:
        outputs = by_layers(activation, dtype, x_NK, trunks)
    else:
        how = How(blocks, activation, jnp.dtype(dtype), _INTERPRETED.get())
        outputs = _heads(how, x_NK, tuple(trunks))
    return jax.tree.map(lambda y: y.reshape(*leading, y.shape[-1]), outputs)


def _plan(x_NK: Array, trunks: Sequence[Trunk]) -> RowBlocks | None:
    return dense_gpu.plan(len(x_NK), list(map(dense_gpu.shape_of, trunks)))


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
    kernel = partial(dense_gpu.forward, how)
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
            dense_gpu.backward(how, x_NK, trunk, of_heads)
            for trunk, of_heads in zip(trunks, gradients, strict=True)
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
    if _plan(x_NK, trunks) is None:
        return None  # No program has the kernels.

    def values_and_gradients(run: Callable[..., PyTree]) -> PyTree:
        def compute(x_NK: Array, trunks: PyTree) -> PyTree:
            values, pull = jax.vjp(partial(run, activation, dtype), x_NK, trunks)
            return values, pull(outputs)

        return jax.device_get(jax.jit(compute)(x_NK, trunks))

    try:
        found = values_and_gradients(dense_heads)
        expected = values_and_gradients(by_layers)
    except Exception as error:  # whatever a compiler or a driver raises
        return f"failed: {type(error).__name__}: {error}"
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # NaN is never near.
        if not np.max(np.abs(x - y)) <= _ROUNDING * np.max(np.abs(y)):
            return "do not agree with the layers on this device"
    return None
