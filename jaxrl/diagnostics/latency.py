"""The time that acting takes, from an observation in the host's memory to an action there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.suitable_networks import suitable_networks
from jaxrl.config import Config, NetworkConfig, versions
from jaxrl.config.environment import spec_of
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.parallel import cpu_devices

_FEWEST_CALLS = 200  # so that more than two calls decide the 99th percentile
_PARTS = 5  # of the calls, for the spread of the median
_WARM_UP = 20


@dataclasses.dataclass(frozen=True)
class Latency:
    """Time of calls with one batch size.

    Attributes:
      encoder, core: of the network; the first may be the name of an architecture.
      p50_ms, p95_ms, p99_ms: percentiles of a call's time, in milliseconds.
      p50_spread_ms: half the range of the medians of a fifth of the calls each.
      throughput: observations per second, calls following one another.
      compile_seconds: time to compile, before the calls.
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


def measure(function: PolicyFunction, network: NetworkConfig, batch: int, seconds: float) -> Latency:
    """Measures calls with random observations; all but the carry is copied to the device and back.

    Args:
      network: the configuration of its network, for the record.
      seconds: the duration; at least 200 calls are made.
    """
    obs = function.random_observations(batch)
    _, carry, _, *rest = function.example(batch)
    reset = np.zeros(batch, bool)
    rest = [np.asarray(x) for x in rest]
    started = time.perf_counter()
    act = jax.jit(function).lower(obs, carry, reset, *rest).compile()
    compile_seconds = time.perf_counter() - started
    took: list[float] = []
    ends: float | None = None
    while ends is None or time.perf_counter() < ends or len(took) < _FEWEST_CALLS + _WARM_UP:
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


def benchmark(
    config: Config, trained: PolicyFunction | None, every: bool, batches: Sequence[int], seconds: float
) -> dict[str, Any]:
    """The latencies and the machine on which they were measured, as plain JSON values.

    Args:
      config: its network is measured.
      trained: the policy of that network; None measures an untrained one.
      every: measure every built-in encoder that takes the observation, times every core.
      batches: rows of each call.
      seconds: the duration for each batch size.
    """
    found = []
    for network in suitable_networks(config.network, spec_of(config.env)) if every else [config.network]:
        own = trained if network == config.network else None
        function = own or PolicyFunction.untrained(dataclasses.replace(config, network=network))
        found += [measure(function, network, batch, seconds) for batch in batches]
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
