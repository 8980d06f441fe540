"""The trainer: the loop that drives compiled programs, evaluates, saves and stops."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from envs.base import HostEnvError
from jaxrl.config import Config, largest_device_count, resolve
from jaxrl.config.errors import RunError
from jaxrl.evaluation.result import Result
from jaxrl.metrics import reduction
from jaxrl.metrics.tracing import Traces, host_phase
from jaxrl.metrics.writers import Writer
from jaxrl.parallel.process_group import is_first, num_processes
from jaxrl.rollout.host.waiting import Cancelled
from jaxrl.runs.folder import RunFolder
from jaxrl.training import memory
from jaxrl.training.assembly import Assembly
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.checkpoints import RunCheckpoints, write_run
from jaxrl.training.hyperparameters import with_hyperparameters
from jaxrl.training.nonfinite import Finding
from jaxrl.training.pipeline import MAX_IN_FLIGHT, Pipeline
from jaxrl.training.progress import Progress
from jaxrl.training.recovery import Recovery
from jaxrl.training.reporter import Reporter
from jaxrl.training.schedule import Schedule
from jaxrl.training.start import Start, StartingPoint, keep_earlier_rows
from jaxrl.types import EpisodeTotals, LearnerState, TrainState, Trajectory

log = logging.getLogger(__name__)


class Trainer:
    """Trains one policy on all devices.

    `fit()` does everything. For a loop of your own:

        trainer = Trainer(config)
        for _ in range(trainer.config.num_iterations):
            trajectory = trainer.rollout()
            metrics = trainer.update(trajectory)
            trainer.log(metrics)

    Between iterations `set` changes hyperparameters, `save` writes the state and `load` takes one.

    Attributes:
      config: the resolved configuration.
      folder: where checkpoints go, or None.
      callbacks: functions that `fit` calls.
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
        callbacks: Callbacks = Callbacks(),  # noqa: B008
    ):
        """Builds and checks everything; compiles nothing yet.

        Args:
          config: as from a config file, or already resolved.
          folder: where checkpoints go, and what to resume from; None keeps nothing.
          writer: receives the metrics; None prints them.
          assembly: what to drive; None builds it from `config`.
          debug: also name the operation that made a NaN.
          callbacks: functions that `fit` calls.

        Raises:
          ConfigError: the configuration is wrong.
        """
        if isinstance(config, ConfigDict):
            config = resolve(config, config.num_devices or largest_device_count(config, jax.device_count()))
        self.config, self.folder, self.callbacks = config, folder, callbacks
        self._assembly = assembly = assembly or Assembly.build(config)
        self._clock, self._agreement = assembly.clock, assembly.agreement
        self._runtime, self.policy = assembly.runtime, assembly.runtime.policy
        self._pipeline = Pipeline(self._runtime, self._clock, self._agreement, bool(callbacks.on_iteration))
        self._checkpoints = RunCheckpoints(folder, self._runtime.learning)
        self._start = Start(config, self._runtime.learning, self._checkpoints)
        self._recovery = Recovery(config, self._runtime, self._checkpoints, self._start, debug)
        self._schedule = Schedule(config, self._agreement)
        self._writer = writer
        self._reporter = Reporter(config, self._runtime, self._clock, lambda: self.writer)
        self.progress = Progress(self._pipeline.interval)
        self.interrupted = self._has_started = False
        self._state: TrainState | None = None
        self._totals: EpisodeTotals | None = None
        self._steps_at_start, self._saved_at = 0, 0.0  # environment steps, wall seconds

    @property
    def state(self) -> TrainState:
        """The `TrainState`; replaced, and its buffers donated, by every step."""
        if self._state is None:
            self._state = self._runtime.learning.initial_state()
        return self._state

    @functools.cached_property
    def writer(self) -> Writer:
        """Where metrics go; the display appears with the first use, not before."""
        return self._assembly.display() if self._writer is None else self._writer

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

    def evaluate(self, episodes: int | None = None, sample: bool | None = None) -> Result:
        """Plays whole episodes with the current policy and frozen normaliser.

        Args:
          episodes: how many; None for `evaluate.episodes`.
          sample: draw actions instead of taking the most likely ones; None for `evaluate.sample`.
        """
        policy, iteration = self.state.learner.policy, self.progress.iteration
        return Result.of(self._assembly.evaluators.play("eval/", policy, iteration, episodes, sample))

    def set(self, **hyperparameters: float) -> None:
        """Changes hyperparameters from the next iteration on, such as `set(learning_rate=1e-4)`.

        They are part of the state: checkpoints keep them.

        Raises:
          ConfigError: there is no such hyperparameter, or its field does not allow the value.
        """
        topology = self._runtime.learning.topology
        self._state = with_hyperparameters(self.config, topology, self.state, hyperparameters)
        log.info("step %d: %s", self.steps, hyperparameters)

    def adopt(self, learner: LearnerState) -> None:
        """Goes on with what another run has learnt; the environments stay where they are."""
        self._state = dataclasses.replace(self.state, learner=learner)
        self.progress = dataclasses.replace(self.progress, evaluated_at=-1)

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Writes the whole state as a run folder, which `load`, `resume_from` and all commands take.

        Args:
          path: local or gs://; states of later steps may be added to it.
          metadata: JSON values to keep with it.

        Raises:
          ConfigError: the folder cannot be written, or holds another run or this very step.
          SaveError: the checkpoint could not be written.
        """
        write_run(path, self._runtime.learning, self.state, self._progress_to_save(), metadata or {})

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Takes the whole state of a run folder, its newest, or of `RUN/checkpoints/STEP`.

        Returns:
          The metadata that was saved with it.

        Raises:
          CheckpointError: there is none, it is damaged, or its arrays do not fit the configuration.
          ConfigError: it is of another task, network or seed.
        """
        found = self._checkpoints.read("path", path)
        self._begin(StartingPoint(found.state, found.progress, continues=True, origin=os.fspath(path)))
        return dict(found.metadata)

    def close(self) -> None:
        """Ends environments on the host, where a loop of your own has used them; `fit` does so by itself."""
        self._runtime.close()

    def start(self) -> None:
        """Takes the state to train from; `Start.find` says which.

        Raises:
          CheckpointError: what is there does not fit the configuration, or none of it is intact.
        """
        self._begin(self._start.find())

    def _begin(self, point: StartingPoint) -> None:
        self._runtime.close()
        self._state, self.progress, self._totals = point.state, point.progress, None
        self._has_started = True
        self._pipeline.restart(self.progress.interval)
        self._reporter.begin(self.progress.iteration)
        if point.continues:
            self._clock.carry_over(self.progress.seconds, self.progress.trained_seconds)
            self._steps_at_start = self.steps
            self.writer.resume_from(self.steps)
            log.info("resumed from the checkpoint of step %d: %s", self.steps, point.origin)
            return
        if self.folder is not None and is_first():
            keep_earlier_rows(self.folder)
        if point.origin:
            self.writer.status(f"starting from {point.origin}")

    def fit(self) -> dict[str, Any]:
        """Trains until a budget is used up or the target return is reached; returns the summary.

        Begins with `start()`, unless that or steps of your own came before.

        Raises:
          NonFiniteError: a NaN or an infinity appeared, and `nonfinite` is "halt".
          SaveError: the final state could not be saved.
          OutOfMemory: a program needs more memory than there is; the last checkpoint is kept.
          RunError: no step was made in time, or a host environment failed; the state before it is saved.
        """
        try:
            if self._state is None and not self._has_started:
                self.start()
            self._agreement.begin()
            reason = self._schedule.stop_reason(self.progress)
            if reason == "wall_seconds":
                raise self._schedule.out_of_time(self._clock.seconds("compile"))
            if reason is not None and self.progress.is_evaluated:
                self.writer.status("nothing to do: the run has used up its budget")
                return self._finish(reason)
            self.writer.status("compiling the training program")
            self._state = self._assembly.compile(lambda: self.state)
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
        window, programs = self.config.profile_window, self._assembly.programs
        traces = Traces(trace_folder, window, programs, self.writer.message, self._clock)
        self._saved_at = self._agreement.wall_seconds
        while (reason := self._schedule.stop_reason(self.progress)) is None or not self._drain(0):
            iteration = self.progress.iteration
            if interruption.takes_trace():
                traces.request(iteration, exact=num_processes() == 1)
            traces.step(iteration, self._state)
            target = self._pipeline.fits(iteration, min(self.config.next_event(iteration), traces.edge()))
            closes_row = self._schedule.due(target).row
            self._state, iteration = self._pipeline.dispatch(self.state, iteration, target, closes_row)
            self.progress = dataclasses.replace(self.progress, iteration=iteration)
            due = self._schedule.due(iteration, self._saved_at)
            # The host reads old metrics while the devices work, and waits for them only at an event.
            if not self._drain(0 if due.evaluation or due.checkpoint else MAX_IN_FLIGHT - 1):
                continue
            if due.evaluation and not self._evaluate():
                continue
            # The state that the run ends with is saved at its end.
            ends = self._schedule.stop_reason(self.progress) is not None
            if not ends and (due.checkpoint or self.progress.is_best):
                self._save()
        traces.close()
        self._runtime.close()
        return reason

    def _drain(self, at_most: int) -> bool:
        """Waits until `at_most` dispatches are in flight and logs their rows.

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
            if self.callbacks.on_iteration and dispatch.metrics:
                self.callbacks.on_iteration(self, reduction.row(dispatch.metrics))
        return True

    def _recover(self, halt: bool = False, finding: Finding | None = None) -> None:
        """Rolls back after a NaN or an infinity, from the state before the iteration in which it appeared.

        Where that is not wanted, or with `halt`, saves that state, says where the value comes from (looked
        for, unless it is the `finding`), and gives up.
        """
        self.progress = dataclasses.replace(self.progress, iteration=int(self.state.iteration))
        if halt or self._recovery.halts:
            self._save()
            self.writer.status("looking for the first value that is not finite")
            self._recovery.give_up(self.state, finding)
        cause = str(finding or f"iteration {self.progress.iteration + 1} was not finite")
        self._state, self.progress = self._recovery.roll_back(cause)
        self._pipeline.restart(self.progress.interval)
        self.writer.resume_from(self.steps)

    def _evaluate(self, last: bool = False) -> bool:
        """Evaluates and reports.

        False where a signal asked not to wait for that, or where a return was not finite and the run was
        rolled back (with `last` it ends).
        """
        self.writer.status("evaluating")
        policy, iteration = self.state.learner.policy, self.progress.iteration
        try:
            with self._clock.measure("evaluate"), host_phase("evaluate"):
                result, row, samples = self._assembly.evaluators(policy, iteration)
        except Cancelled:
            return False
        finding = self._reporter.evaluation(iteration, result, row, samples)
        if finding and self.config.nonfinite != "skip":
            self._recover(halt=last, finding=finding)
            return False
        kept = None if finding else result
        self.progress = dataclasses.replace(self.progress, evaluation=kept, evaluated_at=iteration)
        if kept and self.callbacks.on_evaluation:
            self.callbacks.on_evaluation(self, kept)
        self.writer.status("training")
        return True

    def _save(self, last: bool = False) -> None:
        """Saves the state, unless it is; what fails is warned of, with `last` raised."""
        save = self._checkpoints.save_last if last else self._checkpoints.save
        self._saved_at = self._agreement.wall_seconds
        with self._clock.measure("save"), host_phase("checkpoint"):
            saved = save(self.state, self._progress_to_save())
        if saved or self.folder is None:
            self.progress = self.progress.saved()
        if saved:
            self._recovery.note_checkpoint()
            self._reporter.checkpoint(self.steps)
            if self.callbacks.on_checkpoint:
                self.callbacks.on_checkpoint(self, self.steps)

    def _progress_to_save(self) -> Progress:
        return dataclasses.replace(
            self.progress.saved(),
            seconds=self._clock.total(),
            trained_seconds=self._clock.trained(),
            interval=self._pipeline.interval,
        )

    def _finish(self, reason: str) -> dict[str, Any]:
        """A last row, evaluation and checkpoint of the final state, where the schedule left none.

        After a signal it only saves: whoever sent it does not wait for an evaluation. Where the time of the
        process is up, it evaluates only if an earlier evaluation has shown how long that takes.
        """
        interruption, made = self._agreement.interruption, self.steps - self._steps_at_start
        if reason == "wall_seconds" and not made:
            raise self._schedule.out_of_time(self._clock.seconds("compile"))
        self.interrupted = reason == interruption.name
        if not self.interrupted:
            if int(self._pipeline.interval.iterations):
                self._reporter.row(self.progress.iteration, self._pipeline.interval)
                self._pipeline.restart()
            evaluates = reason != "wall_seconds" or self._clock.seconds("evaluate") > 0
            if evaluates and not self.progress.is_evaluated:
                self.interrupted = not self._evaluate(last=True)
        if self.interrupted:
            reason = str(interruption.name)
            self.writer.status(f"{reason}: saving")
        self._save(last=True)
        self.writer.flush()
        log.info("stopped at step %d: %s", self.steps, reason)
        ended: dict[str, Any] = {"steps": self.steps, "seconds": round(self._clock.total(), 3)}
        if not self.interrupted:
            ended = self._reporter.summary(self.progress, made, self._assembly.topology.description)
        summary = {"stop_reason": reason, **ended}
        if self._writer is None:  # Whoever gives a writer ends it.
            self.writer.finish(summary)
        return summary
