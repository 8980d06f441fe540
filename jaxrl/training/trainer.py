"""The trainer: the loop that drives compiled programs, evaluates, saves and stops."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from envs.base import HostEnvError
from jaxrl import networks
from jaxrl.config import Config, largest_device_count, resolve
from jaxrl.config.errors import RunError
from jaxrl.evaluation.result import Result
from jaxrl.metrics import reduction
from jaxrl.metrics.tracing import Traces, host_phase
from jaxrl.metrics.writers import MultiWriter, Writer, console
from jaxrl.parallel.process_group import is_first, num_processes
from jaxrl.rollout.host.waiting import Cancelled
from jaxrl.runs.folder import RunFolder
from jaxrl.training import memory, warm_start
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.pipeline import MAX_IN_FLIGHT, Pipeline
from jaxrl.training.progress import Progress
from jaxrl.training.recovery import Recovery
from jaxrl.training.reporter import Reporter
from jaxrl.training.schedule import Schedule
from jaxrl.types import EpisodeTotals, TrainState, Trajectory

log = logging.getLogger(__name__)


class Trainer:
    """Trains one policy on all devices.

    `fit()` does everything. For a loop of your own:

        trainer = Trainer(config)
        for _ in range(trainer.config.num_iterations):
            trajectory = trainer.rollout()
            metrics = trainer.update(trajectory)
            trainer.log(metrics)

    Attributes:
      config: the resolved configuration.
      folder: where checkpoints go, or None.
      policy: what is trained.
      progress: how far it is.
      interrupted: whether a signal ended `fit`.
    """

    def __init__(
        self,
        config: ConfigDict | Config,
        folder: RunFolder | None = None,
        writer: Writer | None = None,
        assembly: Assembly | None = None,
        debug: bool = False,
    ):
        """Builds and checks everything; compiles nothing yet.

        Args:
          config: as from a config file, or already resolved.
          folder: where checkpoints go, and what to resume from; None keeps nothing.
          writer: receives the metrics; None prints them.
          assembly: what to drive; None builds it from `config`.
          debug: also name the operation that made a NaN.

        Raises:
          ConfigError: the configuration is wrong.
        """
        if isinstance(config, ConfigDict):
            config = resolve(config, config.num_devices or largest_device_count(config, jax.device_count()))
        self.config, self.folder = config, folder
        self._assembly = assembly = assembly or Assembly.build(config)
        self._clock, self._agreement = assembly.clock, assembly.agreement
        self._runtime, self.policy = assembly.runtime, assembly.runtime.policy
        self._pipeline = Pipeline(self._runtime, self._clock, self._agreement)
        self._checkpoints = RunCheckpoints(folder, self._runtime.learning)
        self._recovery = Recovery(config, self._runtime, self._checkpoints, debug)
        self._schedule = Schedule(config, self._agreement)
        self._writer = writer
        self._reporter = Reporter(config, self._runtime, self._clock, lambda: self.writer)
        self.progress = Progress(self._pipeline.interval)
        self.interrupted = False
        self._state: TrainState | None = None
        self._totals: EpisodeTotals | None = None
        self._steps_at_start = 0

    @property
    def state(self) -> TrainState:
        """The `TrainState`; replaced, and its buffers donated, by every step."""
        if self._state is None:
            self._state = self._runtime.learning.initial_state()
        return self._state

    @functools.cached_property
    def writer(self) -> Writer:
        """Where metrics go; the display appears with the first use, not before."""
        if self._writer is not None:
            return self._writer
        if not is_first():
            return MultiWriter(())
        network = networks.describe(self.config.network, self._runtime.spec)
        return console(self.config, self._runtime.learning.algorithm.highlights, network)

    @property
    def steps(self) -> int:
        """Environment steps taken."""
        return self.progress.iteration * self.config.steps_per_iteration

    def rollout(self) -> Trajectory:
        """Steps the environments by one rollout and returns it, as global arrays [T, num_envs, ...]."""
        self._state, trajectory, self._totals = self._runtime.rollout(self.state)
        return trajectory

    def update(self, trajectory: Trajectory) -> dict[str, float]:
        """Learns one iteration from a trajectory of `rollout()`; returns its metrics."""
        if self._totals is None:
            raise RuntimeError("update() needs the trajectory of a rollout() before it")
        self._state, metrics = self._runtime.learning.update(self.state, trajectory, self._totals)
        self._totals = None
        self.progress = dataclasses.replace(self.progress, iteration=self.progress.iteration + 1)
        return reduction.row(metrics)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes metrics at the current step."""
        self.writer.write(self.steps, {"steps": self.steps, **metrics})

    def evaluate(self, episodes: int | None = None, sample: bool = False) -> Result:
        """Plays whole episodes with the current policy and frozen normaliser."""
        policy, iteration = self.state.learner.policy, self.progress.iteration
        return Result.of(self._assembly.evaluators.play("eval/", policy, iteration, episodes, sample))

    def close(self) -> None:
        """Ends environments on the host, where a loop of your own has used them; `fit` does so by itself."""
        self._runtime.close()

    def start(self) -> None:
        """Takes the state to train from: the first of these that there is.

        1. The newest intact checkpoint in the run's own folder: everything continues as it was.
        2. `init_from`: parameters and normaliser of another run, where `init_names` match; the rest fresh.
        3. Fresh, from the seed.

        Raises:
          CheckpointError: what is there does not fit the configuration, or none of it is intact.
        """
        restored = self._checkpoints.restore()
        if restored is not None:
            self._state, self.progress = restored
            self._pipeline.restart(self.progress.interval)
            self._clock.carry_over(self.progress.seconds)
            self._steps_at_start = self.steps
            self.writer.resume_from(self.steps)
            log.info("resumed from the checkpoint of step %d", self.steps)
        elif self.config.init_from:
            learner, report = warm_start.load(
                self.config.init_from, self.config.init_names, self.state.learner
            )
            self._state = dataclasses.replace(self.state, learner=learner)
            self.writer.status(f"starting from {report}")

    def fit(self) -> dict[str, Any]:
        """Trains until a budget is used up or the target return is reached; returns the summary.

        Begins with `start()`, unless that or steps of your own came before.

        Raises:
          NonFiniteError: a NaN or an infinity appeared, and `nonfinite` is "halt".
          SaveError: the final state could not be saved.
          OutOfMemory: a program needs more memory than there is; the last checkpoint is kept.
          RunError: an environment on the host failed; the state before it is saved.
        """
        try:
            if self._state is None:
                self.start()
            self._agreement.begin()
            reason = self._schedule.stop_reason(self.progress)
            if reason is not None and self.progress.evaluation_of_state is not None:
                self.writer.status("nothing to do: the run has used up its budget")
                log.info("nothing to do at step %d: %s", self.steps, reason)
                return self._finish(reason)
            self.writer.status("compiling the training program")
            self._state = self._assembly.compile(self.state)
            log.info("compiled in %.1f s", self._clock.seconds("compile"))
            self.writer.status("training")
            with self._agreement.interruption.deferred():
                return self._finish(self._train())
        except HostEnvError as error:
            self._drain(0)
            self._save(last=True)
            self.writer.flush()
            raise RunError(str(error)) from error
        except jax.errors.JaxRuntimeError as error:
            if not memory.is_out_of_memory(error):
                raise
            raise memory.explain(error, self.config, self._runtime) from error
        finally:
            self._runtime.close()

    def _train(self) -> str:
        """Collects, learns, logs, evaluates and saves until there is a reason to stop; returns that."""
        interruption, folder = self._agreement.interruption, self.folder
        trace_folder = folder.trace_folder if folder is not None and is_first() else None
        programs = lambda: (self._runtime.compiled, *self._assembly.evaluators.compiled)  # noqa: E731
        traces = Traces(trace_folder, self.config.profile_window, programs, self.writer.message, self._clock)
        while (reason := self._schedule.stop_reason(self.progress)) is None or not self._drain(0):
            iteration = self.progress.iteration
            if interruption.takes_trace():
                traces.request(iteration, exact=num_processes() == 1)
            traces.step(iteration, self._state)
            target = self._pipeline.fits(iteration, min(self.config.next_event(iteration), traces.edge()))
            closes_row = self._schedule.due(target).row
            self._state, iteration = self._pipeline.dispatch(self.state, iteration, target, closes_row)
            self.progress = dataclasses.replace(self.progress, iteration=iteration)
            due = self._schedule.due(self.progress.iteration)
            # The host reads old metrics while the devices work, and waits for them only at an event.
            if not self._drain(0 if due.evaluation or due.checkpoint else MAX_IN_FLIGHT - 1):
                continue
            if due.evaluation and not self._evaluate():
                continue
            if due.checkpoint:
                self._save()
        traces.close()
        self._runtime.close()
        return reason

    def _drain(self, at_most: int) -> bool:
        """Waits until `at_most` dispatches are in flight and logs their rows.

        Returns:
          False where one met a NaN and the run was rolled back, so that nothing is due any more.
        """
        for dispatch in self._pipeline.finished(at_most):
            if dispatch.failed:
                self._recover()
                return False
            if dispatch.closes_row:
                row = self._reporter.row(dispatch.iteration, dispatch.interval)
                if self._recovery.has_stalled(dispatch.iteration, row):
                    self._recover(halt=True)
        return True

    def _recover(self, halt: bool = False) -> None:
        """Rolls back after a NaN or an infinity, from the state before the iteration in which it appeared.

        Where that is not wanted, or with `halt`, saves that state, says where the value comes from, and
        gives up.
        """
        self.progress = dataclasses.replace(self.progress, iteration=int(self.state.iteration))
        if halt or self._recovery.halts:
            self._save()
            self.writer.status("looking for the first value that is not finite")
            self._recovery.give_up(self.state)
        self._state, self.progress = self._recovery.roll_back(self.progress.iteration)
        self._pipeline.restart(self.progress.interval)
        self.writer.resume_from(self.steps)

    def _evaluate(self) -> bool:
        """Evaluates and reports; returns False where a signal asked not to wait for that."""
        self.writer.status("evaluating")
        policy, iteration = self.state.learner.policy, self.progress.iteration
        try:
            with self._clock.measure("evaluate"), host_phase("evaluate"):
                result, row, samples = self._assembly.evaluators(policy, iteration)
        except Cancelled:
            return False
        self.progress = dataclasses.replace(self.progress, evaluation=result, evaluated_at=iteration)
        self._reporter.evaluation(self.steps, result, row, samples)
        self.writer.status("training")
        return True

    def _save(self, last: bool = False) -> None:
        """Saves the state, unless it is; what fails is warned of, with `last` raised."""
        if self.folder is None:
            return
        save = self._checkpoints.save_last if last else self._checkpoints.save
        progress = dataclasses.replace(
            self.progress, seconds=self._clock.total(), interval=self._pipeline.interval
        )
        with self._clock.measure("save"), host_phase("checkpoint"):
            saved = save(self.state, progress)
        if saved:
            self._recovery.note_checkpoint()
            self._reporter.checkpoint(self.steps)

    def _finish(self, reason: str) -> dict[str, Any]:
        """A last row, evaluation and checkpoint of the final state, where the schedule left none.

        After a signal it only saves: whoever sent it does not wait for an evaluation.
        """
        interruption = self._agreement.interruption
        self.interrupted = reason == interruption.name
        if not self.interrupted:
            if int(self._pipeline.interval.iterations):
                self._reporter.row(self.progress.iteration, self._pipeline.interval)
                self._pipeline.restart()
            self.interrupted = self.progress.evaluation_of_state is None and not self._evaluate()
        if self.interrupted:
            reason = str(interruption.name)
            self.writer.status(f"{reason}: saving")
        self._save(last=True)
        self.writer.flush()
        log.info("stopped at step %d: %s", self.steps, reason)
        facts: dict[str, Any] = {"steps": self.steps, "seconds": round(self._clock.total(), 3)}
        if not self.interrupted:
            made = self.steps - self._steps_at_start
            result, device = self.progress.evaluation_of_state, self._assembly.topology.description
            assert result is not None
            facts = self._reporter.summary(result, self.steps, made, device)
        return {"stop_reason": reason, **facts}
