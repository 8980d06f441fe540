"""The limits of the machine: its float32 matmul rate and the environment's own rate."""

from __future__ import annotations

import outcome  # isort: skip

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp

from jaxrl.config import versions
from jaxrl.envs import registry
from jaxrl.envs.vector import VectorEnv
from jaxrl.parallel import cpu_devices, sharding

_MATRIX = 4096
_CALLS = 5
_TARGET_SECONDS = 1.0


def matmul_rate() -> float:
    """Floating-point operations per second of a large product, XLA's threads on all cores."""
    product = jax.jit(jnp.dot)
    a = jax.random.normal(jax.random.key(0), (_MATRIX, _MATRIX), jnp.float32)
    jax.block_until_ready(product(a, a))
    return 2 * _MATRIX**3 / statistics.median(_seconds(product, a, a) for _ in range(_CALLS))


def environment_rate(name: str, num_envs: int, devices: int) -> float:
    """Steps per second with random actions, the environments shared by `devices` virtual devices."""
    env = VectorEnv(registry.make(name))
    per_device = num_envs // devices
    actions = env.spec.action_space.n

    def play(key: jax.Array, steps: jax.Array) -> jax.Array:
        state, _ = env.reset(jax.random.split(key[0], per_device))

        def step(i: jax.Array, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            state, total = carry
            step_key, action_key = jax.random.split(jax.random.fold_in(key[0], i))
            action = jax.random.randint(action_key, (per_device,), 0, actions)
            state, timestep = env.step(jax.random.split(step_key, per_device), state, action)
            return state, total + timestep.reward.sum()

        _, total = jax.lax.fori_loop(0, steps, step, (state, jnp.zeros(())))
        return total[None]

    topology = sharding.Topology.of(devices)
    program = topology.shard(play, (sharding.SHARDED, sharding.REPLICATED), sharding.SHARDED)
    keys = jax.random.split(jax.random.key(0), devices)
    trial = 1000
    jax.block_until_ready(program(keys, trial))
    steps = max(trial, int(trial * _TARGET_SECONDS / _seconds(program, keys, trial)))
    return steps * num_envs / statistics.median(_seconds(program, keys, steps) for _ in range(_CALLS))


def _seconds(call: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start


def main(task: dict[str, Any]) -> None:
    """Reports both rates; without a `work` in the task, the first alone."""
    if "work" not in task:
        outcome.report(matmul_flops=matmul_rate())
        return
    cores = cpu_devices.available_cores()
    devices = max(n for n in range(1, cores + 1) if task["num_envs"] % n == 0)
    cpu_devices.offer_cpu_devices(devices)
    outcome.report(
        matmul_flops=matmul_rate(),
        env_steps_per_second=environment_rate(f"gymnax:{task['work']['env']}", task["num_envs"], devices),
        devices=devices,
        versions=versions(),
    )


if __name__ == "__main__":
    main(outcome.task())
