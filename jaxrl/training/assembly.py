"""The parts that a trainer drives, built and checked from a configuration."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.evaluation.during_training import EvaluationPlan, Evaluators
from jaxrl.evaluation.evaluator import build
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.compilation import await_turn, return_memory
from jaxrl.parallel.process_group import everywhere, is_first
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.programs.host_runtime import HostRuntime
from jaxrl.programs.hyperparameters import program_shape, with_budget
from jaxrl.programs.memory import replay_bytes, require_memory
from jaxrl.programs.runtime import Runtime
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.reporting.writers import MultiWriter, Writer, console
from jaxrl.runs.signals import Interruption
from jaxrl.training.coordination import DISPATCH_SECONDS, Coordinator
from jaxrl.training.plan import TrainingPlan
from jaxrl.types import TrainState


def build_runtime(config: Config, topology: Topology, clock: Clock, coordinator: Coordinator) -> Runtime:
    """The runtime of `env.name`; ConfigError if the configuration cannot be trained here."""
    runtime: Runtime
    if config.collects and registry.is_host(config.env.name):
        runtime = HostRuntime(config, topology, clock, coordinator.gives_up)
    else:
        runtime = DeviceRuntime(config, topology)
    require_memory(config, topology, runtime.spec, runtime.agent, replay_bytes(runtime))
    return runtime


@dataclass(frozen=True)
class Assembly:
    """The devices and everything that works on them; nothing is compiled yet.

    Each stage of training has one; without stages the run is one.

    Attributes:
      clock: where the seconds of the run go.
      runtime: makes iterations; stages of one shape share it.
    """

    config: Config
    clock: Clock
    topology: Topology
    coordinator: Coordinator
    runtime: Runtime
    evaluators: Evaluators

    @classmethod
    def build(
        cls, config: Config, interruption: Interruption | None = None, process_started: float | None = None
    ) -> Assembly:
        """Builds everything; nothing is compiled.

        Args:
          interruption: the signals that this process receives; None for a process that catches none.
          process_started: the time of `time.perf_counter` from which `stop.wall_seconds` counts; None is now.

        Raises:
          ConfigError: the configuration cannot be trained here.
        """
        clock = Clock(process_started=process_started)
        topology = Topology.of(config.device_count)
        coordinator = Coordinator(clock, topology.gatherer(), interruption, _dispatch_seconds(config))
        return cls._on(config, clock, topology, coordinator)

    @classmethod
    def around(
        cls,
        config: Config,
        runtime: Runtime,
        evaluators_of: Callable[[Callable[[], bool]], Evaluators],
        interruption: Interruption,
        process_started: float | None,
    ) -> Assembly:
        """An assembly around a runtime that exists, such as a population member's; otherwise as `build`.

        `evaluators_of` makes the evaluators, given a function that says whether a signal ends a wait.
        """
        clock = Clock(process_started=process_started)
        coordinator = Coordinator(clock, None, interruption, _dispatch_seconds(config))
        evaluators = evaluators_of(coordinator.gives_up)
        return cls(config, clock, runtime.learning.topology, coordinator, runtime, evaluators)

    @classmethod
    def _on(cls, config: Config, clock: Clock, topology: Topology, coordinator: Coordinator) -> Assembly:
        runtime = build_runtime(config, topology, clock, coordinator)
        evaluators = Evaluators(
            config,
            EvaluationPlan.of(config, runtime.spec),
            lambda task: build(config, task, runtime.agent, topology, coordinator.gives_up),
            runtime.agent,
        )
        return cls(config, clock, topology, coordinator, runtime, evaluators)

    def of_stages(self, plan: TrainingPlan) -> list[Assembly]:
        """The assemblies of all stages, this one the first's; they share devices and clock.

        Raises:
          ConfigError: a stage cannot be trained here.
        """
        if not plan.stages:
            return [self]
        known = {program_shape(plan.configs[0]): self}
        found = []
        for i, config in enumerate(plan.configs):
            shape = program_shape(config)
            if shape not in known:
                known[shape] = self._on(config, self.clock, self.topology, self.coordinator)
            found.append(dataclasses.replace(known[shape], config=config))
            plan.require_renewable(i, known[shape].runtime.learning)
        return found

    @property
    def learning(self) -> ShardedLearning:
        """The programs that learn, with the configuration of the stage."""
        return self.runtime.learning.with_config(self.config)

    def compile(self, make_state: Callable[[], TrainState]) -> TrainState:
        """Compiles training and evaluation side by side, for XLA compiles outside the GIL.

        `make_state` gives the state to train from, by a separate program if that is a run's first. Returns
        the state to begin with; meanwhile environments on the host have started.
        """
        with self.clock.measure("compile"), ThreadPoolExecutor(3) as pool:
            policy = self.runtime.learning.abstract_state().learner.policy
            # One evaluation is traced sooner: XLA has something to do while the training program is traced.
            first, *others = self.evaluators.compile(policy)
            jobs = [pool.submit(job) for job in (first, self.runtime.compile, *others)]
            await_turn()
            state = self.runtime.prepare(make_state())
            for job in jobs:
                job.result()
            # Gives back half of what is resident by now; in a thread, as it takes a tenth of a second.
            threading.Thread(target=return_memory, name="memory", daemon=True).start()
            self.coordinator.begin()  # Other processes may still be compiling.
        return state

    def at_present(self, state: TrainState, seconds: float | None = None) -> TrainState:
        """The state, whose schedules may follow the seconds of training.

        `seconds` are those that all processes have agreed on; None if they have yet to.
        """
        if not self.config.follows_clock:
            return state
        if seconds is None:
            (seconds, *_) = everywhere(self.clock.trained_seconds())
        learner = with_budget(self.config, self.topology, state.learner, seconds)
        return dataclasses.replace(state, learner=learner)

    def programs(self) -> tuple[Any, ...]:
        """The programs that have been compiled."""
        return (self.runtime.compiled, *self.evaluators.compiled)

    def display(self) -> Writer:
        """Opens the writer that shows metrics to a person, in the first of several processes."""
        if not is_first():
            return MultiWriter(())
        network = self.runtime.agent.description
        return console(self.config, self.runtime.learning.per_device.highlights, network)


def _dispatch_seconds(config: Config) -> float:
    """The target length of a dispatch: rows of a short budget of time do not wait for longer ones."""
    return min(DISPATCH_SECONDS, config.log_seconds)
