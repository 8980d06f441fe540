"""Size and speed of networks: the latency of acting, and the cost of training."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms import suitable_networks
from jaxrl.config import Config, NetworkConfig, versions
from jaxrl.config.environment import spec_of
from jaxrl.diagnostics.throughput import program_bytes, train
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.metrics.clock import Clock
from jaxrl.parallel import cpu_devices
from jaxrl.parallel.sharding import Topology
from jaxrl.training.assembly import build_runtime
from jaxrl.training.coordination import Coordinator

_LATENCY_SECONDS = 0.5
_FEWEST_CALLS = 200  # so that more than two calls decide the 99th percentile
_PARTS = 5  # of the calls, for the spread of the median
_WARM_UP = 20


@dataclass(frozen=True)
class ArchitectureFigures:
    """The size and the speed of one architecture.

    Attributes:
      sees: the parts of an observation that it sees; () of a user.
      mflop_per_step: of one action, in millions of floating-point operations.
      mflop_per_update: beside its steps' operations, for the graphs of all levels, once an update; forward.
      p50_ms: the median time from an observation in the host's memory to an action there, milliseconds.
      steps_per_second: of training, updates included; None if that is not measured.
    """

    architecture: str
    sees: tuple[str, ...]
    parameters: int
    mflop_per_step: float
    mflop_per_update: float
    p50_ms: float
    steps_per_second: float | None


def suitable_configs(config: Config) -> tuple[list[Config], dict[str, str]]:
    """(the configuration with each architecture that its observations suit, why the others do not)."""
    found, others = suitable_networks.suitable_architectures(config.network, spec_of(config.env))
    return [dataclasses.replace(config, network=network) for network in found], others


def measure(
    configs: Sequence[Config], seconds: float, say: Callable[[str, int, int], object]
) -> Iterator[ArchitectureFigures]:
    """Measures the architecture of each configuration.

    Args:
      seconds: of training each, after compilation; 0: none.
      say: is called with the one being measured, its number and the number of all.
    """
    for number, config in enumerate(configs, 1):
        name = config.network.architecture
        say(name, number, len(configs))
        function = PolicyFunction.untrained(config)
        acting = measure_latency(function, config.network, batch=1, seconds=_LATENCY_SECONDS)
        yield ArchitectureFigures(
            architecture=name,
            sees=suitable_networks.seen_parts(config.network),
            parameters=acting.parameters,
            mflop_per_step=function.forward_flops() / 1e6,
            mflop_per_update=function.preparation_flops() / 1e6,
            p50_ms=acting.p50_ms,
            steps_per_second=training_cost(config, seconds).steps_per_second if seconds else None,
        )


@dataclass(frozen=True)
class TrainingCost:
    """Training on one device: its speed, updates included; bytes of the program, None if unknown."""

    parameters: int
    steps_per_second: float
    memory: int | None


def training_cost(config: Config, seconds: float) -> TrainingCost:
    """Times whole iterations for at least some seconds, after compilation and one more iteration."""
    clock = Clock()
    config = dataclasses.replace(config, device_count=1)
    runtime = build_runtime(config, Topology.of(1), clock, Coordinator(clock))
    runtime.compile()
    empty = runtime.learning.empty_interval()
    state = train(runtime, empty, runtime.prepare(runtime.learning.initial_state()), 1)
    started = time.perf_counter()
    iterations = 0
    while time.perf_counter() < started + seconds:
        state = train(runtime, empty, state, 1)
        iterations += 1
    took = time.perf_counter() - started
    runtime.close()
    return TrainingCost(
        parameters=sum(x.size for x in jax.tree.leaves(state.learner.policy.params)),
        steps_per_second=iterations * config.steps_per_iteration / took,
        memory=program_bytes(runtime.compiled),
    )


@dataclass(frozen=True)
class Latency:
    """Time of calls with one batch size, from an observation in the host's memory to an action there.

    Attributes:
      encoder: of the network, or the name of its architecture.
      p50_ms, p95_ms, p99_ms: percentiles of a call's time, in milliseconds.
      p50_spread_ms: half the range of the medians of a fifth of the calls each.
      throughput: observations per second, calls following one another.
    """

    encoder: str
    core: str
    parameters: int
    batch: int
    calls: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p50_spread_ms: float
    throughput: float
    compile_seconds: float


def measure_latency(function: PolicyFunction, network: NetworkConfig, batch: int, seconds: float) -> Latency:
    """Measures calls for some seconds, at least 200, with random observations.

    All but the carry is copied to the device and back. The `network` of the function is for the record.
    """
    obs = function.random_observations(batch)
    _, carry, _, *rest = function.example(batch)
    reset = np.zeros(batch, bool)
    rest = [np.asarray(x) for x in rest]
    started = time.perf_counter()
    act = jax.jit(function).lower(obs, carry, reset, *rest).compile()
    compile_seconds = time.perf_counter() - started
    took: list[float] = []
    ends = 0.0
    while len(took) < _FEWEST_CALLS + _WARM_UP or time.perf_counter() < ends:
        if len(took) == _WARM_UP:
            ends = time.perf_counter() + seconds
        started = time.perf_counter()
        out = act(obs, carry, reset, *rest)
        jax.device_get(out["action"])
        took.append(time.perf_counter() - started)
        carry = out["carry"]
    calls = np.array(took[_WARM_UP:])
    medians = [np.median(part) for part in np.array_split(calls, _PARTS)]
    p50, p95, p99 = (float(x) for x in np.percentile(calls, (50, 95, 99)) * 1e3)
    return Latency(
        encoder=network.architecture or network.encoder,
        core=network.core,
        parameters=sum(x.size for x in jax.tree.leaves(function.state.params)),
        batch=batch,
        calls=len(calls),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        p50_spread_ms=float(np.ptp(medians)) * 1e3 / 2,
        throughput=batch / float(calls.mean()),
        compile_seconds=compile_seconds,
    )


def benchmark_latency(
    config: Config, trained: PolicyFunction | None, every: bool, batches: Sequence[int], seconds: float
) -> dict[str, Any]:
    """The latencies of a network and the machine on which they were measured, as plain JSON values.

    Args:
      trained: the policy of that network; None measures an untrained one.
      every: measure every built-in encoder that takes the observation, times every core.
      batches: rows of each call.
      seconds: the duration for each batch size.
    """
    found = []
    own = config.network
    for network in suitable_networks.suitable_networks(own, spec_of(config.env)) if every else [own]:
        function = trained if network == own else None
        function = function or PolicyFunction.untrained(dataclasses.replace(config, network=network))
        found += [measure_latency(function, network, batch, seconds) for batch in batches]
    device = jax.devices()[0]
    return {
        "environment": config.env.name,
        "hidden_sizes": list(config.network.hidden_sizes),
        "core_size": config.network.core_size,
        "device": {
            "kind": device.device_kind,
            "platform": device.platform,
            "host_cores": cpu_devices.available_cores(),
        },
        "versions": versions(),
        "results": [dataclasses.asdict(x) for x in found],
    }
