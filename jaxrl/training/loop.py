"""The training loop: collect, learn, log, evaluate, save, stop."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NoReturn

from jaxrl.config.errors import RunError
from jaxrl.envs.host_env import HostEnvError
from jaxrl.experience.host.threads import Cancelled
from jaxrl.metrics import reduction
from jaxrl.metrics.tracing import Traces, host_phase
from jaxrl.parallel.process_group import num_processes
from jaxrl.reporting.writers import Writer
from jaxrl.training.assembly import Assembly
from jaxrl.training.callbacks import Callbacks, notify
from jaxrl.training.coordination import STAGE, Schedule
from jaxrl.training.dispatch_queue import MAX_IN_FLIGHT, DispatchQueue
from jaxrl.training.nonfinite import Finding, Recovery
from jaxrl.training.reporter import Reporter
from jaxrl.training.run_state import RunState, StateSaver

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingLoop:
    """Trains a run to its end."""

    assembly: Assembly
    run: RunState
    queue: DispatchQueue
    schedule: Schedule
    saver: StateSaver
    recovery: Recovery
    reporter: Reporter
    writer: Writer
    trainer: Any
    callbacks: Callbacks[Any]
    traces: Traces

    def train(self) -> dict[str, Any] | None:
        """Compiles, trains until there is a reason to stop, and ends the run.

        Returns the summary; None if only the stage has ended.

        Raises:
          NonFiniteError: a NaN or an infinity appeared, and `nonfinite` is "halt".
          SaveError: the final state could not be saved.
          RunError: no step was made in time, or a host environment failed; the state before it is saved.
        """
        coordinator = self.assembly.coordinator
        try:
            coordinator.begin()
            reason = self.schedule.stop_reason(self.run.progress)
            if reason == "wall_seconds":
                raise self._out_of_time()
            if reason == STAGE:
                self._log_last_row()
                return None
            if reason is not None and self.run.progress.is_evaluated:
                self.writer.status("nothing to do: the run has used up its budget")
                return self._finish(reason)
            self._compile()
            with coordinator.interruption.defer():
                reason = self._iterate()
                if reason == STAGE:
                    self._log_last_row()
                    return None
                self.assembly.runtime.close()
                return self._finish(reason)
        except HostEnvError as error:
            self._log_finished(0)
            self._save(last=True)
            self.writer.flush()
            raise RunError(str(error)) from error

    def _compile(self) -> None:
        if self.assembly.runtime.compiled is not None:  # For another stage.
            self.run.replace(self.assembly.runtime.prepare(self.run.state))
            return
        self.writer.status("compiling the training program")
        self.run.replace(self.assembly.compile(lambda: self.run.state))
        log.info("compiled in %.1f s", self.assembly.clock.seconds("compile"))
        self.writer.status("training")

    def _iterate(self) -> str:
        """Collects, learns, logs, evaluates and saves until there is a reason to stop; returns that."""
        run = self.run
        self.saver.begin()
        reason = self._stop_reason()
        while reason is None:
            if run.progress.owes_evaluation:
                # It was due when the state was saved, before a step more is trained.
                self._evaluate()
                if run.progress.is_best or self.schedule.due(run.progress.iteration).checkpoint:
                    self.saver.save_score()
                reason = self._stop_reason()
                continue
            self._collect_and_learn()
            due = self.schedule.due(run.progress.iteration, self.saver.saved_at)
            # The host reads old metrics while the devices work, and waits for them only at an event.
            in_flight = 0 if due.evaluation or due.checkpoint else MAX_IN_FLIGHT - 1
            continues = self._log_finished(in_flight)
            if continues and due.evaluation:
                continues = self._evaluate()
            wanted = continues and (due.checkpoint or run.progress.is_best)
            if wanted and self.schedule.stop_reason(run.progress) in (None, STAGE):  # else saved at the end
                self._save()
            reason = self._stop_reason()
        self.traces.close()
        return reason

    def _collect_and_learn(self) -> None:
        """Dispatches iterations up to the next event, or as many as go at once."""
        iteration = self.run.progress.iteration
        trace_requested = self.assembly.coordinator.interruption.take_trace_request()
        if trace_requested:
            self.traces.request(iteration, exact=num_processes() == 1)
        self.traces.step(iteration, self.run.state)
        if self.assembly.config.refreshes(iteration):
            with self.assembly.clock.measure("train"), host_phase("refresh"):
                self.run.replace(self.assembly.runtime.refresh(self.run.state))
        event = min(self.schedule.next_event(self.run.progress), self.traces.edge())
        target = self.queue.fits(iteration, event)
        closes_row = self.schedule.due(target, logged_at=self.queue.logged_at).row
        now = self.assembly.at_present(self.run.state, self.assembly.coordinator.status.trained_seconds)
        state, iteration = self.queue.dispatch(now, iteration, target, closes_row)
        self.run.advance(state, iteration)

    def _stop_reason(self) -> str | None:
        """Returns the reason to stop, with all rows logged; None to train on.

        Iterations still in flight may have to be rolled back. The reason may be gone then.
        """
        reason = self.schedule.stop_reason(self.run.progress)
        if reason is None:
            return None
        continues = self._log_finished(0)
        return reason if continues else self.schedule.stop_reason(self.run.progress)

    def _log_finished(self, in_flight: int) -> bool:
        """Waits until `in_flight` dispatches are left and logs the rows of the others.

        False if one was not finite and the run was rolled back, so that nothing is due any more.
        """
        for dispatch in self.queue.drain(in_flight):
            if dispatch.failed:
                self._recover()
                return False
            if dispatch.closes_row:
                row = self.reporter.row(dispatch.iteration, dispatch.interval)
                notify(self.callbacks.on_row, self.trainer, row)
                self.recovery.note_row(dispatch.iteration, row)
                if self.recovery.has_stalled(dispatch.iteration):
                    self._give_up()
            if dispatch.metrics:
                notify(self.callbacks.on_iteration, self.trainer, reduction.row(dispatch.metrics))
        return True

    def _evaluate(self, last: bool = False) -> bool:
        """Evaluates and reports; a return of the `last` evaluation that is not finite ends the run.

        False if a signal ended the wait for it, or if a return was not finite and the run was rolled back.
        """
        self.writer.status("evaluating")
        iteration = self.run.progress.iteration
        policy = self.run.state.learner.policy
        try:
            with self.assembly.clock.measure("evaluate"), host_phase("evaluate"):
                recent = self.run.progress.recent_returns
                evaluation = self.assembly.evaluators(policy, iteration, recent)
        except Cancelled:
            self.run.postpone_evaluation()
            return False
        except HostEnvError:
            self.run.postpone_evaluation()
            raise
        finding = self.reporter.evaluation(iteration, evaluation)
        if finding and self.assembly.config.nonfinite != "skip":
            if last:
                self._give_up(finding)
            self._recover(finding)
            return False
        self.run.record_evaluation(None if finding else evaluation)
        notify(self.callbacks.on_evaluation, self.trainer, evaluation.deciding)
        self.writer.status("training")
        return True

    def _save(self, last: bool = False) -> None:
        """Saves the state, unless it is saved; a failure is a warning, with `last` an error."""
        saved = self.saver.save(last)
        if saved:
            self.recovery.note_checkpoint()
            self.reporter.checkpoint()
            notify(self.callbacks.on_checkpoint, self.trainer, self.run.steps)

    def _recover(self, finding: Finding | None = None) -> None:
        """Rolls back after a NaN or an infinity; gives up if that is not wanted, or was done too often."""
        if self.recovery.halts:
            self._give_up(finding)
        self.run.count_finite()
        cause = str(finding or f"iteration {self.run.progress.iteration + 1} was not finite")
        self.run.drop_memory()
        state, progress = self.recovery.roll_back(cause)
        self.run.roll_back(state, progress)
        self.queue.restart(progress.interval)
        self.writer.resume_from(self.run.steps)

    def _give_up(self, finding: Finding | None = None) -> NoReturn:
        """Saves the state before the iteration that failed, and says where the value comes from."""
        self.run.count_finite()
        self._save()
        self.writer.status("looking for the first value that is not finite")
        self.recovery.give_up(self.run.state, finding)

    def _finish(self, reason: str) -> dict[str, Any]:
        """Logs, evaluates and saves the final state if the schedule has not; returns the summary.

        After a signal it only saves: its sender does not wait for an evaluation. If the time of the process
        is up, it evaluates only if an earlier evaluation has shown how long that takes.
        """
        if reason == "wall_seconds" and not self.run.steps_of_process:
            raise self._out_of_time()
        interruption = self.assembly.coordinator.interruption
        interrupted = reason == interruption.name
        if not interrupted:
            self._log_last_row()
            self.reporter.untrained()
            evaluates = reason != "wall_seconds" or self.assembly.clock.seconds("evaluate") > 0
            if evaluates and not self.run.progress.is_evaluated:
                interrupted = not self._evaluate(last=True)
        self.run.record_end(interrupted)
        if interrupted:
            reason = str(interruption.name)
            self.writer.status(f"{reason}: saving")
        self._save(last=True)
        self.writer.flush()
        log.info("stopped at step %d: %s", self.run.steps, reason)
        if interrupted:
            return {"stop_reason": reason, **self.reporter.short_summary()}
        return {"stop_reason": reason, **self.reporter.summary(self.assembly.topology.description)}

    def _log_last_row(self) -> None:
        """Logs the iterations since the last row, if there are any."""
        if int(self.queue.interval.iterations):
            self.reporter.row(self.run.progress.iteration, self.queue.interval)
            self.queue.restart()

    def _out_of_time(self) -> RunError:
        return self.schedule.out_of_time(self.assembly.clock.seconds("compile"))
