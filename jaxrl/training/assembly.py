"""What a trainer drives, built and checked from a configuration."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from envs import registry
from jaxrl import networks
from jaxrl.config import Config
from jaxrl.evaluation.during_training import EvaluationPlan, Evaluators
from jaxrl.evaluation.evaluators import build
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.writers import MultiWriter, Writer, console
from jaxrl.parallel.coordination import Agreement
from jaxrl.parallel.process_group import is_first
from jaxrl.parallel.sharding import Topology
from jaxrl.parallel.signals import Interruption
from jaxrl.training.capacity import require_memory
from jaxrl.training.device_runtime import DeviceRuntime
from jaxrl.training.host_runtime import HostRuntime
from jaxrl.training.runtime import Runtime
from jaxrl.types import TrainState


def build_runtime(config: Config, topology: Topology, clock: Clock, agreement: Agreement) -> Runtime:
    """The runtime of `env.name`.

    Args:
      config: the resolved configuration.
      topology: all devices.
      clock: of the run.
      agreement: with the other processes.

    Raises:
      ConfigError: the configuration cannot be trained here.
    """
    runtime: Runtime
    if registry.is_host(config.env.name):
        runtime = HostRuntime(config, topology, clock, agreement.gives_up)
    else:
        runtime = DeviceRuntime(config, topology)
    require_memory(config, topology, runtime.spec, runtime.policy)
    return runtime


@dataclass(frozen=True)
class Assembly:
    """The devices and everything that works on them; nothing is compiled yet.

    Attributes:
      config: the resolved configuration.
      clock: where the seconds of the run go.
      topology: all devices.
      agreement: of the processes on signals, time and pace.
      runtime: makes iterations.
      evaluators: play episodes.
    """

    config: Config
    clock: Clock
    topology: Topology
    agreement: Agreement
    runtime: Runtime
    evaluators: Evaluators

    @classmethod
    def build(
        cls,
        config: Config,
        interruption: Interruption | None = None,
        process_started: float | None = None,
    ) -> Assembly:
        """Builds everything; nothing is compiled.

        Args:
          config: the resolved configuration.
          interruption: the signals that this process receives; None for a process that catches none.
          process_started: the time of `time.perf_counter` from which `stop.wall_seconds` counts; None is now.

        Raises:
          ConfigError: the configuration cannot be trained here.
        """
        clock, topology = Clock(process_started=process_started), Topology.of(config.device_count)
        agreement = Agreement(clock, topology.gatherer(), interruption)
        runtime = build_runtime(config, topology, clock, agreement)
        evaluators = Evaluators(
            config,
            EvaluationPlan.of(config, runtime.spec),
            lambda task: build(config, task, runtime.policy, topology, agreement.gives_up),
        )
        return cls(config, clock, topology, agreement, runtime, evaluators)

    def compile(self, make_state: Callable[[], TrainState]) -> TrainState:
        """Compiles training and evaluation side by side, for XLA compiles outside the GIL.

        Args:
          make_state: gives the state to train from; the first one of a run takes a program of its own.

        Returns:
          The state to begin with; meanwhile environments on the host have started.
        """
        with self.clock.measure("compile"), ThreadPoolExecutor(3) as pool:
            training = pool.submit(self.runtime.compile)
            policy = self.runtime.learning.abstract_state().learner.policy
            jobs = [training, *map(pool.submit, self.evaluators.compile(policy))]
            state = self.runtime.prepare(make_state())
            for job in jobs:
                job.result()
            self.agreement.begin()  # Other processes may still be compiling.
        return state

    def programs(self) -> tuple[Any, ...]:
        """What has been compiled."""
        return (self.runtime.compiled, *self.evaluators.compiled)

    def display(self) -> Writer:
        """What shows metrics to a person, in the first of several processes."""
        if not is_first():
            return MultiWriter(())
        network = networks.describe(self.config.network, self.runtime.spec)
        return console(self.config, self.runtime.learning.learning.highlights, network)
