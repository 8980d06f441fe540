"""Times every core over sequences of 64 to 4,096 steps, and a single step, on this machine's device.

    python benchmarks/cores_by_length.py
    python benchmarks/cores_by_length.py --lengths=64,256 --seconds=0.2

Each row is one pass forwards and backwards through a core of 128 units for 8 environments, with an episode
that begins somewhere in each: thousands of steps per second, the ratio to the LSTM of the same run, and MiB
that the compiled program needs beside its arguments and results. `step` is one step of acting for 64
environments, which is given the carry in place. docs/performance.md has the results.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import NetworkConfig
from jaxrl.networks.cores import build_core

CORES = ("lstm", "gru", "mingru", "lru", "s5", "gated_delta", "gtrxl")
UNITS, ENVS, ACTING = 128, 8, 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="64,256,1024,4096")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    given = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; thousand steps/s, x LSTM, MiB")
    for length in ("step", *(int(x) for x in given.lengths.split(","))):
        base = None
        for name in CORES:
            rate, memory = (
                acting(name, given.seconds) if length == "step" else learning(name, length, given.seconds)
            )
            base = rate if base is None else base
            print(
                f"{length!s:>6} {name:12} {rate / 1e3:10.1f} {rate / base:7.2f} {memory / 2**20:9.1f}",
                flush=True,
            )
    return 0


def learning(name: str, length: int, seconds: float) -> tuple[float, int]:
    """(steps per second forwards and backwards, bytes)."""
    core, params, x, reset = problem(name, length, ENVS)

    def loss(params: Any, x: jax.Array, reset: jax.Array) -> jax.Array:
        y, _ = core.apply(params, x, core.initial_carry(ENVS), reset)
        return jnp.square(y).mean()

    program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(params, x, reset).compile()
    return length * ENVS / best(lambda: program(params, x, reset), seconds), temporary(program)


def acting(name: str, seconds: float) -> tuple[float, int]:
    """(steps per second of single steps for many environments, bytes)."""
    core, params, x, reset = problem(name, 1, ACTING)

    def step(params: Any, x: jax.Array, carry: Any) -> Any:
        return core.apply(params, x, carry, reset)

    carry = core.initial_carry(ACTING)
    program = jax.jit(step, donate_argnums=2).lower(params, x, carry).compile()
    state = [carry]

    def run() -> jax.Array:
        y, state[0] = program(params, x, state[0])
        return y

    return ACTING / best(run, seconds), temporary(program)


def problem(name: str, length: int, envs: int) -> tuple[Any, Any, jax.Array, jax.Array]:
    """(core, parameters, input, resets)."""
    core = build_core(dataclasses.replace(NetworkConfig(), core=name, core_size=UNITS))
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(length, envs, UNITS)), jnp.float32)
    reset = (
        jnp.zeros((length, envs), bool).at[rng.integers(0, length, envs), jnp.arange(envs)].set(length > 1)
    )
    params = jax.jit(core.init)(jax.random.key(0), x[:1], core.initial_carry(envs), reset[:1])
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
    found: int = program.memory_analysis().temp_size_in_bytes
    return found


if __name__ == "__main__":
    sys.exit(main())
