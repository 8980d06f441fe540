"""The time that acting takes, from an observation in the host's memory to an action there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import Box, Dict, Discrete, EnvSpec, MultiDiscrete, Space
from jaxrl import networks
from jaxrl.config import Config, NetworkConfig, NormalizeConfig, versions
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.parallel import cpu_devices

CORES = ("lstm", "gru", "mingru", "lru", "none")
_FEWEST_CALLS = 200  # so that two calls alone do not decide the 99th percentile
_WARM_UP = 20


@dataclasses.dataclass(frozen=True)
class Latency:
    """Time of calls with one batch size.

    Attributes:
      encoder, core: of the network.
      parameters: how many it has.
      batch: rows of each call.
      calls: how many were timed.
      p50_ms, p95_ms, p99_ms: percentiles of a call's time, in milliseconds.
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
    throughput: float
    compile_seconds: float


def fresh(network: NetworkConfig, normalize: NormalizeConfig, spec: EnvSpec) -> PolicyFunction:
    """An untrained policy: it acts as fast as a trained one.

    Raises:
      ConfigError: the network does not suit the environment.
    """
    policy = networks.build(network, spec, normalize)
    state = jax.jit(policy.initial_state)(jax.random.key(0))
    return PolicyFunction(policy, spec, state)


def architectures(network: NetworkConfig, spec: EnvSpec) -> Iterator[NetworkConfig]:
    """`network` with every built-in encoder that takes the observation, times every core."""
    names = _encoders(spec.observation_space) or [network.encoder]
    for encoder in names:
        for core in CORES:
            yield dataclasses.replace(network, encoder=encoder, core=core)


def _encoders(space: Space) -> list[str]:
    if isinstance(space, Dict):  # one per key: as configured
        return []
    if not (isinstance(space, Box) and len(space.shape) == 3):
        return ["mlp", "identity"]
    fits = ["mlp", "minatar", "impala"]
    return [*fits, "nature"] if min(space.shape[:2]) >= 36 else fits


def measure(function: PolicyFunction, network: NetworkConfig, batch: int, seconds: float) -> Latency:
    """Times calls with random observations; the carry stays on the device, all else is copied to and fro.

    Args:
      function: greedy.
      network: what it was built from, for the record.
      batch: rows of each call.
      seconds: how long to measure; at least 200 calls are made.
    """
    obs = _random(function.spec.observation_space, batch)
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
    p50, p95, p99 = (float(x) for x in np.percentile(calls, (50, 95, 99)) * 1e3)
    return Latency(
        encoder=network.encoder,
        core=network.core,
        parameters=sum(x.size for x in jax.tree.leaves(function.state.params)),
        batch=batch,
        calls=len(calls),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        throughput=batch / float(calls.mean()),
        compile_seconds=compile_seconds,
    )


def benchmark(
    config: Config,
    spec: EnvSpec,
    trained: PolicyFunction | None,
    every: bool,
    batches: Sequence[int],
    seconds: float,
) -> dict[str, Any]:
    """Returns the latencies and what they were measured on, as plain JSON values.

    Args:
      config: its network is measured.
      spec: of the environment.
      trained: the policy of that network; None measures an untrained one.
      every: measure every built-in encoder that takes the observation, times every core.
      batches: rows of each call.
      seconds: how long for each batch size.
    """
    found = []
    for network in architectures(config.network, spec) if every else [config.network]:
        own = trained if network == config.network else None
        function = own or fresh(network, config.normalize, spec)
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


def _random(space: Space, batch: int) -> Any:
    """Observations in numpy: normally distributed for boxes of floats, else any valid values."""
    rng = np.random.default_rng(0)
    if isinstance(space, Dict):
        return {key: _random(part, batch) for key, part in space.spaces}
    shape = (batch, *space.shape)
    if isinstance(space, Discrete | MultiDiscrete):
        high = space.n if isinstance(space, Discrete) else np.array(space.nvec)
        return rng.integers(0, high, shape).astype(space.dtype)
    if jnp.issubdtype(space.dtype, jnp.floating):
        return rng.normal(size=shape).astype(space.dtype)
    return rng.integers(0, 2, shape).astype(space.dtype)
