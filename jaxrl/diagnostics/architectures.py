"""Size and speed of every architecture that has a name, on one environment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jax

from jaxrl.algorithms import suitable_networks
from jaxrl.config import Config
from jaxrl.config.environment import spec_of
from jaxrl.diagnostics import latency
from jaxrl.diagnostics.throughput import program_bytes
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.sharding import Topology
from jaxrl.training.assembly import build_runtime
from jaxrl.training.coordination import Coordinator

_LATENCY_SECONDS = 0.5


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


def require_suitable(config: Config) -> None:
    """Raises ConfigError if the architecture of a configuration does not suit the observations."""
    suitable_networks.require_suitable(config.network, spec_of(config.env))


def measure(
    configs: Sequence[Config], seconds: float, say: Callable[[str, int, int], object]
) -> Iterator[ArchitectureFigures]:
    """Measures architectures.

    Args:
      configs: each trains one of them.
      seconds: of training each, after compilation; 0: none.
      say: is called with the one being measured, its number and the number of all.
    """
    for number, each in enumerate(configs, 1):
        say(each.network.architecture, number, len(configs))
        yield figures(each, seconds)


def figures(config: Config, seconds: float) -> ArchitectureFigures:
    """The figures of the architecture of a configuration; see `measure`."""
    name = config.network.architecture
    function = PolicyFunction.untrained(config)
    acting = latency.measure(function, config.network, batch=1, seconds=_LATENCY_SECONDS)
    return ArchitectureFigures(
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
    """The cost of training on one device.

    Attributes:
      steps_per_second: updates included.
      memory: bytes of the program; None if unknown.
    """

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
    state = runtime.prepare(runtime.learning.initial_state())
    state, _, failed = runtime.advance(state, empty, 1)  # takes longer than any other
    jax.block_until_ready(failed)
    started = time.perf_counter()
    iterations = 0
    while time.perf_counter() < started + seconds:
        state, _, failed = runtime.advance(state, empty, 1)
        jax.block_until_ready(failed)
        iterations += 1
    took = time.perf_counter() - started
    runtime.close()
    return TrainingCost(
        parameters=sum(x.size for x in jax.tree.leaves(state.learner.policy.params)),
        steps_per_second=iterations * config.steps_per_iteration / took,
        memory=program_bytes(runtime.compiled),
    )
