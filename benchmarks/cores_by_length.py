"""Times every core over sequences of 64 to 4,096 steps, and a single step, on this machine's device.

    python benchmarks/cores_by_length.py
    python benchmarks/cores_by_length.py --lengths=64,256 --seconds=0.2
    python benchmarks/cores_by_length.py --topology=h200 --envs=512

Each row is one pass forwards and backwards through a core of 128 units for some environments, with an episode
that begins somewhere in each: thousands of steps per second, the ratio to the LSTM of the same run, and MiB
that the compiled program needs beside its arguments and results. `step` is one step of acting for 64
environments, which is given the carry in place. With --topology the programs are compiled for a GPU that
is only described, and nothing is run: kernels, MiB that they read and write, MiB that the program needs, and
the milliseconds that `jaxrl preflight` estimates from both, with all parts at once and one after the other.
docs/performance.md has the results.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.diagnostics.launches import IterationTime, read_launches
from jaxrl.networks.cores import build_core
from jaxrl.parallel import gpus
from jaxrl.programs.jaxpr import matmul_flops

CORES = ("lstm", "gru", "mingru", "lru", "s5", "gated_delta", "gtrxl")
CORES += ("linear_attention", "mamba2", "mlstm", "ffm", "slstm")
UNITS, ACTING = 128, 64


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="64,256,1024,4096")
    parser.add_argument("--cores", default=",".join(CORES), help="the first is what ratios are of")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--envs", type=int, default=8, help="environments of a sequence")
    parser.add_argument("--topology", default="", help="compile for a GPU, such as h200, and run nothing")
    given = parser.parse_args()
    lengths = ["step", *(int(x) for x in given.lengths.split(","))]
    if given.topology:
        try:
            return describe(gpus.parse(given.topology), given.cores.split(","), lengths, given.envs)
        except ConfigError as error:
            parser.error(str(error))
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; thousand steps/s, x LSTM, MiB")
    for length in lengths:
        base = None
        for name in given.cores.split(","):
            rate, memory = measure(name, length, given.envs, given.seconds)
            base = rate if base is None else base
            print(
                f"{length!s:>6} {name:12} {rate / 1e3:10.1f} {rate / base:7.2f} {memory / 2**20:9.1f}",
                flush=True,
            )
    return 0


def measure(name: str, length: int | str, envs: int, seconds: float) -> tuple[float, int]:
    """(steps per second, bytes)."""
    if length == "step":
        return acting(name, seconds)
    return learning(name, int(length), envs, seconds)


def describe(described: gpus.Gpus, cores: list[str], lengths: list[int | str], envs: int) -> int:
    """Compiles all programs for a GPU and prints what they consist of."""
    jax.config.update("jax_platforms", "cpu")  # A machine without a GPU's driver would refuse the plugin.
    device, gpu = SingleDeviceSharding(described.devices()[0]), described.gpu
    print(
        f"{gpu.description}, {described.compiler}, not run; kernels, MiB moved, MiB needed, ms by the model"
    )
    for length in lengths:
        for name in ("lstm, kernel", *cores):
            program, donated, arguments = program_of(name, length, envs)
            traced = jax.jit(program, donate_argnums=donated).trace(*_shapes(arguments, device))
            compiled = traced.lower().compile()
            found = read_launches(compiled.as_text())
            flops = matmul_flops(traced.jaxpr, "gpu")
            span = IterationTime.of(found.kernels, found.bytes, flops, gpu.bandwidth, gpu.tf32_flops)
            print(
                f"{length!s:>6} {name:12} {found.kernels:7,} {found.bytes / 2**20:10,.0f} "
                f"{temporary(compiled) / 2**20:9,.1f} {1e3 * span.least:8.3g} to {1e3 * span.most:.3g}",
                flush=True,
            )
    return 0


def _shapes(arrays: Any, device: SingleDeviceSharding) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), arrays)


def program_of(name: str, length: int | str, envs: int) -> tuple[Callable[..., Any], tuple[int, ...], Any]:
    """(function, arguments that it is given in place, arguments)."""
    if length == "step":
        step, arguments = acting_problem(name)
        return step, (2,), arguments
    loss, arguments = learning_problem(name, int(length), envs)
    return jax.grad(loss, argnums=(0, 1)), (), arguments


def learning(name: str, length: int, envs: int, seconds: float) -> tuple[float, int]:
    """(steps per second forwards and backwards, bytes)."""
    loss, arguments = learning_problem(name, length, envs)
    program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*arguments).compile()
    return length * envs / best(lambda: program(*arguments), seconds), temporary(program)


def learning_problem(name: str, length: int, envs: int) -> tuple[Callable[..., jax.Array], Any]:
    """A loss of a core's outputs over a sequence, and its arguments."""
    core, params, x, reset = problem(name, length, envs)

    def loss(params: Any, x: jax.Array, reset: jax.Array) -> jax.Array:
        y, _ = core.apply(params, x, core.initial_carry(envs), reset)
        return jnp.square(y).mean()

    return loss, (params, x, reset)


def acting(name: str, seconds: float) -> tuple[float, int]:
    """(steps per second of single steps for many environments, bytes)."""
    step, (params, x, carry, reset) = acting_problem(name)
    program = jax.jit(step, donate_argnums=2).lower(params, x, carry, reset).compile()
    state = [carry]

    def run() -> jax.Array:
        y, state[0] = program(params, x, state[0], reset)
        return y

    return ACTING / best(run, seconds), temporary(program)


def acting_problem(name: str) -> tuple[Callable[..., Any], Any]:
    """One step of a core for many environments, and its arguments."""
    core, params, x, reset = problem(name, 1, ACTING)

    def step(params: Any, x: jax.Array, carry: Any, reset: jax.Array) -> Any:
        return core.apply(params, x, carry, reset)

    return step, (params, x, core.initial_carry(ACTING), reset)


def problem(name: str, length: int, envs: int) -> tuple[Any, Any, jax.Array, jax.Array]:
    """(core, parameters, input, resets); "lstm, kernel" is the LSTM by the kernel for accelerators."""
    named, _, kernel = name.partition(", ")
    network = dataclasses.replace(NetworkConfig(), core=named, core_size=UNITS)
    core = build_core(network)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((length, envs, UNITS), np.float32))
    reset = (
        jnp.zeros((length, envs), bool).at[rng.integers(0, length, envs), jnp.arange(envs)].set(length > 1)
    )
    params = jax.jit(core.init)(jax.random.key(0), x[:1], core.initial_carry(envs), reset[:1])
    if kernel:
        core = build_core(dataclasses.replace(network, recurrence="pallas"))
    return core, params, x, reset


def best(run: Any, seconds: float) -> float:
    """The shortest of the calls that fit into some seconds, three at least."""
    jax.block_until_ready(run())
    found, ends = [], time.perf_counter() + seconds
    while time.perf_counter() < ends or len(found) < 3:
        started = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - started)
    return min(found)


def temporary(program: Any) -> int:
    return program.memory_analysis().temp_size_in_bytes


if __name__ == "__main__":
    sys.exit(main())
