"""The process of one case of benchmarks/accelerator.py: builds, compiles, times and reports it."""

from __future__ import annotations

import outcome  # isort: skip

import statistics
import time
from typing import Any

import jax
from cases import EPOCHS, ROLLOUT_LENGTH, Case

from jaxrl import networks
from jaxrl.config import Config, default_config, resolve, versions
from jaxrl.diagnostics.launches import IterationTime, Launches, read_launches
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.gpus import GPUS, Gpu, runs_triton
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.jaxpr import matmul_flops
from jaxrl.programs.runtime import Runtime
from jaxrl.training.assembly import build_runtime
from jaxrl.training.coordination import Coordinator
from jaxrl.training.device_count import choose_devices
from jaxrl.types import TrainState

_ENVIRONMENTS = {"cartpole": "gymnax:CartPole-v1", "breakout": "gymnax:Breakout-MinAtar"}
_WINDOWS = 5


def main(task: dict[str, Any]) -> None:
    if task["job"] == "probe":
        outcome.report(**_devices())
        return
    case = Case(**task["case"])
    config = _config(case, tiny=task["tiny"])
    if case.network == "check":
        outcome.report(**_devices(), said=_agreement(config))
        return
    outcome.report(**_devices(), **_measure(case, config, task["seconds"]))


def _devices() -> dict[str, Any]:
    device = jax.devices()[0]
    found = {"platform": device.platform, "device": device.device_kind, "devices": jax.device_count()}
    return found | {"versions": versions()}


def _agreement(config: Config) -> str:
    device = jax.devices()[0]
    faults = {"lstm": networks.kernel_fault(config.network), "dense": networks.dense_fault(config.network)}
    if device.platform != "tpu" and not runs_triton(device):
        return "there are no kernels for this device"
    found = [f"the kernel of {name} {reason}" for name, reason in faults.items() if reason]
    return "; ".join(found) or "kernels and plain forms agree"


def _config(case: Case, tiny: bool) -> Config:
    c = default_config()
    c.env.name, c.env.num_envs = _ENVIRONMENTS[case.env], case.num_envs
    c.network.update(case.network_fields)
    c.network.core_size = 8 if tiny else 128
    if tiny:
        c.network.hidden_sizes = (8,) * len(c.network.hidden_sizes)
    c.ppo.rollout_length, c.ppo.num_epochs = (8 if tiny else ROLLOUT_LENGTH), EPOCHS
    c.ppo.num_minibatches = case.minibatches
    return resolve(c, choose_devices(c))


def _measure(case: Case, config: Config, seconds: float) -> dict[str, Any]:
    topology, clock = Topology.of(config.device_count), Clock()
    runtime = build_runtime(config, topology, clock, Coordinator(clock))
    started = time.perf_counter()
    runtime.compile()
    compiled = time.perf_counter() - started
    state = runtime.prepare(runtime.learning.initial_state())
    state, windows = _windows(runtime, state, seconds)
    iteration = statistics.median(windows)
    steps = config.steps_per_iteration
    result: dict[str, Any] = {
        "steps_per_second": steps / iteration,
        "steps_per_second_range": [steps / max(windows), steps / min(windows)],
        "iteration_seconds": iteration,
        "compile_seconds": compiled,
        "flops_per_iteration": matmul_flops(runtime.trace().jaxpr, topology.axis.platform),
    }
    if case.phases:
        result["rollout_seconds"] = _rollout_seconds(runtime, state, iteration)
    memory = topology.local_devices[0].memory_stats() or {}
    result["peak_memory_bytes"] = memory.get("peak_bytes_in_use")
    return result | _facts(case, runtime, topology, result, config.rollout_length)


def _windows(runtime: Runtime, state: TrainState, seconds: float) -> tuple[TrainState, list[float]]:
    """Seconds of an iteration in each of several windows, after a warm-up."""
    empty = runtime.learning.empty_interval()

    def train(state: TrainState, count: int) -> tuple[TrainState, float]:
        started = time.perf_counter()
        state, _, failed = runtime.advance(state, empty, count)
        jax.block_until_ready((state, failed))
        return state, time.perf_counter() - started

    state, _ = train(state, 1)
    count, took = 1, 0.0
    while took < seconds / _WINDOWS / 2:
        state, took = train(state, count)
        count *= 2
    windows = []
    for _ in range(_WINDOWS):
        state, took = train(state, count)
        windows.append(took / count)
    return state, windows


def _rollout_seconds(runtime: Runtime, state: TrainState, iteration: float) -> float:
    count = max(1, round(0.3 / iteration))
    rollouts = runtime.rollouts(count)
    assert rollouts is not None
    jax.block_until_ready(rollouts(state))
    took = []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready(rollouts(state))
        took.append(time.perf_counter() - started)
    return min(took) / count


def _facts(
    case: Case, runtime: Runtime, topology: Topology, result: dict[str, Any], rollout_length: int
) -> dict[str, Any]:
    """Kernels of an iteration; of GPUs that are known also the share of their peak, and the estimate."""
    if topology.axis.platform != "gpu":
        return {}
    launches: Launches = read_launches(runtime.compiled.as_text())
    step = launches.innermost("rollout")
    found: dict[str, Any] = {
        "kernels": launches.kernels,
        "kernels_by_phase": dict(launches.phases),
        "kernels_per_rollout_step": step.kernels * step.turns / rollout_length if step else None,
    }
    kind = topology.local_devices[0].device_kind
    gpu = next((gpu for gpu in GPUS.values() if gpu.description == kind), None)
    if gpu is None:
        return found
    flops, peak = result["flops_per_iteration"], _peak(gpu, case.precision)
    time_of = IterationTime.of(launches.kernels, launches.bytes, flops, gpu.bandwidth, peak)
    return found | {
        "share_of_peak": flops / result["iteration_seconds"] / peak,
        "estimate_seconds": [time_of.least, time_of.most],
        "estimate_parts": {
            "launches": time_of.launches,
            "memory": time_of.memory,
            "flops": time_of.arithmetic,
        },
    }


def _peak(gpu: Gpu, precision: str) -> float:
    """FLOP per second; float32 has no matrix units, but a multiplication and an addition in each cycle."""
    own = 2 * gpu.cores * gpu.fpus_per_core * gpu.clock_ghz * 1e9
    return {"float32": own, "tf32": gpu.tf32_flops, "bfloat16": gpu.bfloat16_flops}[precision]


if __name__ == "__main__":
    main(outcome.task())
