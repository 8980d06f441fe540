"""The LSTM kernels, interpreted on CPU, against the scan; and compiled for devices that need not exist."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels import lstm_gpu, lstm_tpu
from jaxrl.networks.kernels.cells import LSTM
from jaxrl.networks.kernels.lstm_gpu_kernels import Tiles
from jaxrl.networks.kernels.lstm_kernel import fault, interpret, largest_size, lstm_sequence, runs_on
from jaxrl.networks.kernels.lstm_tpu import Blocks
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan
from jaxrl.parallel import gpus
from jaxrl.programs.jaxpr import matmul_flops
from jaxrl.types import Array, PyTree

ROOT = Path(__file__).parents[3]
L, N, H = 9, 5, 4
on_each_platform = pytest.mark.parametrize("platform", ["tpu", "gpu"])


def problem(length: int = L, rows: int = N, size: int = H, seed: int = 0) -> tuple[PyTree, Array, PyTree]:
    """((weight, inputs, carry), reset, weights of the outputs); resets inside, at the first and last step."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    reset = rng.random((length, rows)) < 0.3
    reset[:, 1] = False
    reset[0, 0] = reset[-1, -1] = True
    carry = {name: normal(rows, size) for name in LSTM.state}
    outputs = (normal(length, rows, size), {name: normal(rows, size) for name in LSTM.state})
    weight = normal(size, 4 * size) / np.sqrt(size)
    return (weight, normal(length, rows, 4 * size), carry), jnp.asarray(reset), outputs


def kernel(platform: str, dtype: Any, weight: Array, inputs: Array, carry: PyTree, reset: Array) -> PyTree:
    with interpret(platform):
        return lstm_sequence(dtype, weight, inputs, carry, reset)


def scan(dtype: Any, weight: Array, inputs: Array, carry: PyTree, reset: Array) -> PyTree:
    return recurrent_scan(LSTM, dtype, weight, inputs, carry, reset)


def values_and_gradients(run: Any, dtype: Any, arguments: PyTree, reset: Array, outputs: PyTree) -> PyTree:
    """Outputs, and gradients of weight, inputs and carry, of a loss in which every output counts."""

    @jax.jit
    def compute(arguments: PyTree) -> PyTree:
        values, backward = jax.vjp(lambda *x: run(dtype, *x, reset), *arguments)
        return values, backward(outputs)

    return compute(arguments)


def assert_close(got: PyTree, expected: PyTree, tolerance: float = 1e-5) -> None:
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731
    jax.tree.map(close, got, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "length", "rows", "size"),
    [
        ("tpu", L, N, H),
        ("tpu", 34, 3, H),  # two turns over time
        # Two blocks of environments, of which the second is not full.
        ("tpu", 7, 270, H),
        ("tpu", 2, 2, 1),
        # Two blocks of environments and two tiles of units, the second of each not full.
        ("gpu", 3, 18, 70),
        ("gpu", L, 16, 16),  # full tiles, weights that stay
        ("gpu", 2, 2, 1),
        ("gpu", 4, 20, 200),  # four tiles
    ],
)
def test_values_and_gradients_equal_those_of_the_scan(
    platform: str, length: int, rows: int, size: int
) -> None:
    arguments, reset, outputs = problem(length, rows, size)
    got = values_and_gradients(partial(kernel, platform), jnp.float32, arguments, reset, outputs)
    expected = values_and_gradients(scan, jnp.float32, arguments, reset, outputs)
    assert_close(got, expected, 1e-5 if rows < 100 else 1e-4)
    assert all(float(jnp.abs(x).max()) > 0 for x in jax.tree.leaves(got))


@pytest.mark.slow
@on_each_platform
def test_bfloat16_rounds_where_the_scan_does(platform: str) -> None:
    arguments, reset, outputs = problem()
    got = values_and_gradients(partial(kernel, platform), jnp.bfloat16, arguments, reset, outputs)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(got))
    assert_close(got, values_and_gradients(scan, jnp.bfloat16, arguments, reset, outputs), 1e-3)
    exact = values_and_gradients(scan, jnp.float32, arguments, reset, outputs)
    assert float(jnp.abs(got[0][0] - exact[0][0]).max()) > 1e-4


@pytest.mark.slow
@on_each_platform
def test_a_diverged_episode_does_not_reach_the_next(platform: str) -> None:
    # correctness 5: 0 * NaN is NaN, so that carries are selected and not multiplied.
    arguments, _, (weights, last) = problem()
    weight, inputs, carry = arguments
    carry = {name: x.at[0].set(jnp.nan) for name, x in carry.items()}
    inputs = inputs.at[:3, 1].set(jnp.nan)
    reset = jnp.zeros((L, N), bool).at[0, 0].set(True).at[3, 1].set(True)
    weights = weights.at[:3, 1].set(0.0)
    values, (_, d_inputs, d_carry) = values_and_gradients(
        partial(kernel, platform), jnp.float32, (weight, inputs, carry), reset, (weights, last)
    )
    h, after = values
    assert np.isnan(h[:3, 1]).all()
    assert np.isfinite(np.delete(h, 1, axis=1)).all()
    assert np.isfinite(h[3:, 1]).all()
    assert all(np.isfinite(x).all() for x in after.values())
    assert np.isfinite(d_inputs[3:]).all()
    np.testing.assert_array_equal(d_carry["c"][0], 0.0)
    np.testing.assert_array_equal(d_carry["h"][0], 0.0)


@pytest.mark.slow
@on_each_platform
def test_under_vmap(platform: str) -> None:
    problems = [problem(seed=seed) for seed in (1, 2)]
    arguments, reset, outputs = jax.tree.map(lambda *x: jnp.stack(x), *problems)
    batched = jax.vmap(lambda *x: values_and_gradients(partial(kernel, platform), jnp.float32, *x))
    got = batched(arguments, reset, outputs)
    for i, single in enumerate(problems):
        expected = values_and_gradients(scan, jnp.float32, *single)
        assert_close(jax.tree.map(lambda x: x[i], got), expected)  # noqa: B023


@pytest.mark.slow
def test_on_other_platforms_the_scan_runs() -> None:
    # A policy that was trained with the kernel acts anywhere.
    arguments, reset, outputs = problem()
    fallback = lambda *x: lstm_sequence(*x)  # noqa: E731
    got = values_and_gradients(fallback, jnp.float32, arguments, reset, outputs)
    assert_close(got, values_and_gradients(scan, jnp.float32, arguments, reset, outputs))


def test_its_products_are_counted() -> None:
    arguments, reset, outputs = problem(34, 270)

    def flops(run: Any, platform: str) -> float:
        compute = lambda *x: values_and_gradients(run, jnp.float32, *x)  # noqa: E731
        return matmul_flops(jax.make_jaxpr(compute)(arguments, reset, outputs), platform)

    # Forward and backward product of each step, and that of the weight gradient.
    products = 3 * 2 * 34 * 270 * H * 4 * H
    assert flops(scan, "tpu") == products
    assert flops(lambda *x: lstm_sequence(*x), "cpu") == products
    assert (
        products < flops(lambda *x: lstm_sequence(*x), "tpu") < 1.02 * products
    )  # the last block is not full
    # 272 rows in blocks of 16, and 4 units in a tile of 16; the weight gradient is outside of the kernel.
    in_tiles = 2 * 2 * 34 * 272 * 16 * 4 * 16
    assert flops(lambda *x: lstm_sequence(*x), "cuda") == in_tiles + products / 3


@pytest.mark.parametrize(
    ("length", "rows", "size", "dtype", "blocks"),
    [
        (1, 64, 128, "float32", None),  # a step of the rollout
        (128, 64, 128, "float32", Blocks(64, 16)),
        (128, 13, 100, "bfloat16", Blocks(13, 16)),
        (128, 300, 128, "float32", Blocks(152, 8)),
        (127, 64, 128, "float32", Blocks(64, 1)),  # a prime number of steps
        (128, 64, 640, "float32", Blocks(64, 1)),
        (128, 64, 641, "float32", None),
        (128, 1000, 768, "bfloat16", Blocks(72, 1)),
        (128, 1000, 769, "bfloat16", None),
    ],
)
def test_when_it_applies_on_tpus(
    length: int, rows: int, size: int, dtype: str, blocks: Blocks | None
) -> None:
    assert lstm_tpu.plan(length, rows, size, dtype) == blocks


@pytest.mark.parametrize(
    ("length", "size", "dtype", "tiles"),
    [
        (1, 128, "float32", None),  # a step of the rollout
        (128, 128, "bfloat16", Tiles(rows=16, columns=128, count=1, warps=8, resident=False)),
        (128, 128, "float32", Tiles(rows=16, columns=64, count=2, warps=8, resident=False)),
        (128, 64, "float32", Tiles(rows=16, columns=64, count=1, warps=8, resident=True)),
        (127, 1, "float32", Tiles(rows=16, columns=16, count=1, warps=4, resident=True)),
        (2, 200, "bfloat16", Tiles(rows=16, columns=128, count=2, warps=8, resident=False)),
        (128, 256, "float32", Tiles(rows=16, columns=64, count=4, warps=8, resident=False)),
        (128, 257, "bfloat16", None),
    ],
)
def test_when_it_applies_on_gpus(length: int, size: int, dtype: str, tiles: Tiles | None) -> None:
    assert lstm_gpu.plan(length, 1024, size, dtype) == tiles


def test_the_platforms_that_have_one() -> None:
    # Devices of either maker call themselves "gpu"; for AMD's the program contains the scan.
    assert [name for name in ("cpu", "gpu", "cuda", "rocm", "tpu") if runs_on(name)] == ["gpu", "cuda", "tpu"]
    assert (largest_size("float32", "gpu"), largest_size("float32")) == (256, 640)


@pytest.mark.slow
def test_a_kernel_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(8, jnp.bfloat16) is None  # the scan on both sides: there is no kernel for a CPU
    with interpret("gpu"):
        assert fault(8, jnp.float32) is None
        backward = lstm_gpu.backward

        def wrong(*arguments: Any) -> Any:
            dinputs, dcarry = backward(*arguments)
            return dinputs, {name: 1.2 * x for name, x in dcarry.items()}

        monkeypatch.setattr(lstm_gpu, "backward", wrong)
        assert fault(8, jnp.float32) == "does not agree with the scan on this device"

        def refuses(*arguments: Any) -> Any:
            raise ValueError("no such instruction")

        monkeypatch.setattr(lstm_gpu, "forward", refuses)
        assert fault(8, jnp.float32) == "failed: ValueError: no such instruction"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_largest_size_is_that_for_any_number_of_environments(dtype: str) -> None:
    size = largest_size(dtype, "tpu")
    assert all(lstm_tpu.plan(8, rows, size, dtype) for rows in range(1, 1100))
    assert lstm_tpu.plan(8, 64, size + 1, dtype) is None


_COMPILE = """
import json, sys
import jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from jaxrl.parallel import gpus, tpu_slices
from jaxrl.networks.kernels.lstm_kernel import lstm_sequence

def gradients(dtype, arguments, reset, outputs):
    values, backward = jax.vjp(lambda *x: lstm_sequence(dtype, *x, reset), *arguments)
    return values, backward(outputs)

for topology, length, rows, size, dtype, seeds, precision in json.loads(sys.argv[1]):
    parse = tpu_slices.parse if ":" in topology else gpus.parse
    device = parse(topology).devices()[0]
    def array(*shape, dtype=jnp.float32):
        shape = (seeds, *shape) if seeds else shape
        return jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))
    carry = {"c": array(rows, size), "h": array(rows, size)}
    arguments = (array(size, 4 * size), array(length, rows, 4 * size), carry)
    call = lambda *x: gradients(dtype, *x)
    jax.config.update("jax_default_matmul_precision", precision)
    lowered = jax.jit(jax.vmap(call) if seeds else call).lower(
        arguments, array(length, rows, dtype=bool), (array(length, rows, size), carry)
    )
    text = lowered.compile().as_text()
    print(text.count("tpu_custom_call") + text.count('custom_call_target="__gpu$xla.gpu.triton"'))
"""


# What it computes is above; tests/e2e/test_preflight.py compiles a program for a slice.
@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, which compiles for TPUs, is not installed: pip install -e '.[tpu]', or run .ci/run",
)
def test_it_compiles_for_tpus() -> None:
    kinds = [
        # v4's vector memory is the smallest of those that are still to be had.
        ("v4:2x2x1", 16, 64, 640, "float32", 0, None),
        ("v4:2x2x1", 128, 256, 128, "float32", 0, "float32"),
        ("v5e:1x1", 128, 300, 100, "bfloat16", 0, "float32"),
        ("v5e:1x1", 7, 3, 5, "float32", 0, "high"),
        ("v5e:1x1", 34, 16, 64, "float32", 3, None),
    ]
    assert_compiled(kinds)


@pytest.mark.slow
@pytest.mark.skipif(
    not gpus.is_installed(), reason="jax[cuda12], which compiles for GPUs, is not installed: see docs/gpu.md"
)
def test_it_compiles_for_gpus() -> None:
    kinds = [
        ("h200", 128, 1024, 128, "bfloat16", 0, None),
        ("a100", 128, 1024, 128, "float32", 0, None),
        # Has the least shared memory.
        ("rtx4090", 16, 100, 200, "bfloat16", 0, None),
        ("h100", 7, 3, 5, "float32", 0, "float32"),
        ("l4", 34, 16, 64, "float32", 3, None),
    ]
    assert_compiled(kinds)


def assert_compiled(kinds: list[tuple[Any, ...]]) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _COMPILE, json.dumps(kinds)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"] * len(kinds)  # forward and backward
