"""The kernels of dense trunks, interpreted on CPU, against plain layers; and compiled for absent GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.diagnostics.launches import read_launches
from jaxrl.networks.kernels import dense_kernel
from jaxrl.networks.kernels.dense_gpu_kernels import Shape
from jaxrl.networks.kernels.dense_kernel import Trunk, dense_heads, fault, interpret
from jaxrl.parallel import gpus
from jaxrl.types import Array, PyTree


def problem(rows: int, inputs: int, trunks: tuple[Any, ...]) -> tuple[Array, list[Trunk], list[list[Array]]]:
    """(x, parameters, weights of the outputs) of trunks, (hidden sizes, sizes of heads) each."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    layer = lambda k, n: (normal(k, n) / k**0.5, normal(n))  # noqa: E731
    parameters = [
        Trunk(
            tuple(layer(k, n) for k, n in zip((inputs, *hidden), hidden, strict=False)),
            tuple(layer((inputs, *hidden)[-1], n) for n in heads),
        )
        for hidden, heads in trunks
    ]
    return normal(rows, inputs), parameters, [[normal(rows, n) for n in heads] for _, heads in trunks]


def linear(dtype: Any, x: Array, weight: Array, bias: Array) -> Array:
    y = jnp.dot(x.astype(dtype), weight.astype(dtype), preferred_element_type=jnp.float32)
    return (y + jnp.broadcast_to(bias, y.shape)).astype(dtype)


def reference(activation: Any, dtype: Any, x: Array, trunks: list[Trunk]) -> list[list[Array]]:
    found = []
    for hidden, heads in trunks:
        h = x
        for weight, bias in hidden:
            h = activation(linear(dtype, h, weight, bias))
        found.append([linear(jnp.float32, h, weight, bias) for weight, bias in heads])
    return found


def values_and_gradients(run: Any, x: Array, trunks: list[Trunk], outputs: PyTree) -> PyTree:
    values, pull = jax.vjp(run, x, trunks)
    return values, pull(outputs)


def assert_close(got: PyTree, expected: PyTree, tolerance: float) -> None:
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731
    jax.tree.map(close, got, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "inputs", "trunks", "activation"),
    [
        (5, 3, (((4,), (2, 1)),), jnp.tanh),
        # Two networks of two layers, and rows and columns that fill no block.
        (70, 5, (((20, 50), (3,)), ((64, 64), (1,))), jnp.tanh),
        (64, 16, (((16, 16, 16), (16, 1)),), jax.nn.silu),
        (40, 128, (((), (7, 1)),), jnp.tanh),
        (40, 9, (((128,), (7,)),), jax.nn.relu),
    ],
)
def test_values_and_gradients_are_those_of_layers(
    rows: int, inputs: int, trunks: tuple[Any, ...], activation: Any
) -> None:
    x, parameters, outputs = problem(rows, inputs, trunks)
    with interpret():
        run = partial(dense_heads, activation, jnp.float32)
        got = values_and_gradients(run, x, parameters, outputs)
    run = partial(reference, activation, jnp.float32)
    assert_close(got, values_and_gradients(run, x, parameters, outputs), 1e-5)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(got))


@pytest.mark.slow
@pytest.mark.parametrize("programs", [1, 3])
def test_a_program_adds_up_the_gradients_of_its_blocks(
    programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, parameters, outputs = problem(5 * 32 - 9, 3, (((8,), (2,)),))
    monkeypatch.setattr(dense_kernel, "_PROGRAMS", programs)
    with interpret():
        run = partial(dense_heads, jnp.tanh, jnp.float32)
        got = values_and_gradients(run, x, parameters, outputs)
    run = partial(reference, jnp.tanh, jnp.float32)
    assert_close(got, values_and_gradients(run, x, parameters, outputs), 3e-5)


@pytest.mark.slow
def test_bfloat16_rounds_where_layers_do() -> None:
    x, parameters, outputs = problem(50, 4, (((64, 64), (2,)),))
    with interpret():
        run = partial(dense_heads, jnp.tanh, jnp.bfloat16)
        got = values_and_gradients(run, x, parameters, outputs)
    rounded = values_and_gradients(partial(reference, jnp.tanh, jnp.bfloat16), x, parameters, outputs)
    exact = values_and_gradients(partial(reference, jnp.tanh, jnp.float32), x, parameters, outputs)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(got))
    assert_close(got[0], rounded[0], 1e-3)
    assert_close(got[1], rounded[1], 3e-2)
    assert float(jnp.abs(got[0][0][0] - exact[0][0][0]).max()) > 1e-4


@pytest.mark.slow
def test_under_vmap() -> None:
    x, parameters, _ = problem(20, 4, (((8,), (2,)),))
    xs = jnp.stack([x, 2 * x, -x])
    with interpret():
        ((got,),) = jax.vmap(lambda x: dense_heads(jnp.tanh, jnp.float32, x, parameters))(xs)
    ((expected,),) = reference(jnp.tanh, jnp.float32, xs, parameters)
    assert_close(got, expected, 1e-5)


@pytest.mark.parametrize(
    ("rows", "hidden", "heads", "applies"),
    [
        (131_072, ((4, 64), (64, 64)), ((64, 2),), True),
        (131_072, ((4, 128),), ((128, 18), (128, 1)), True),
        (131_072, ((129, 64),), ((64, 2),), False),
        (131_072, ((4, 128), (128, 128)), ((128, 2),), False),
        (2**25, ((4, 64), (64, 64)), ((64, 2),), False),
    ],
)
def test_when_it_applies(rows: int, hidden: Any, heads: Any, applies: bool) -> None:
    assert dense_kernel.applies(rows, [Shape(hidden, heads)]) is applies


@pytest.mark.slow
def test_kernels_that_compute_something_else_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(jnp.tanh, jnp.bfloat16, (8,)) is None  # layers on both sides: a CPU has no kernels
    with interpret():
        assert fault(jnp.tanh, jnp.float32, (8,)) is None
        backward = dense_kernel.backward

        def wrong(*arguments: Any) -> Any:
            dx, trunk = backward(*arguments)
            return 1.2 * dx, trunk

        monkeypatch.setattr(dense_kernel, "backward", wrong)
        assert fault(jnp.tanh, jnp.float32, (8,)) == "do not agree with the layers on this device"

        def refuses(*arguments: Any) -> Any:
            raise ValueError("no such instruction")

        monkeypatch.setattr(dense_kernel, "forward", refuses)
        assert fault(jnp.tanh, jnp.float32, (8,)) == "failed: ValueError: no such instruction"


@pytest.mark.slow
@pytest.mark.skipif(
    not gpus.is_installed(), reason="jax[cuda12], which compiles for GPUs, is not installed: see docs/gpu.md"
)
@pytest.mark.parametrize(
    ("gpu", "rows", "inputs", "trunk", "dtype"),
    [
        ("h200", 131_072, 4, ((64, 64), (2, 1)), "float32"),
        ("a100", 1_000, 17, ((64, 64, 64), (6,)), "bfloat16"),
        ("rtx4090", 4_096, 17, ((128,), (18, 1)), "float32"),  # has the least shared memory
    ],
)
def test_it_compiles_for_gpus(gpu: str, rows: int, inputs: int, trunk: Any, dtype: str) -> None:
    arguments = problem(rows, inputs, (trunk,))
    device = jax.sharding.SingleDeviceSharding(gpus.parse(gpu).devices()[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), arguments)
    step = partial(values_and_gradients, partial(dense_heads, jnp.tanh, jnp.dtype(dtype)))
    text = jax.jit(step).lower(*shapes).compile().as_text()
    assert text is not None
    assert text.count('custom_call_target="__gpu$xla.gpu.triton"') == 2  # forward and backward
    # The others add up the gradients of programs, and cut them apart.
    assert read_launches(text).kernels <= 2 + 1 + 2 * (len(trunk[0]) + len(trunk[1]))
