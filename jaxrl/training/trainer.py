"""The trainer: compiled programs over the devices, and the loop that drives them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import jax
from ml_collections import ConfigDict

from envs.base import HostEnvError
from jaxrl.config import Config, largest_device_count, resolve
from jaxrl.config.errors import RunError
from jaxrl.evaluation.evaluator import Result
from jaxrl.metrics import resources, rows
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.tracing import Traces, host_phase
from jaxrl.metrics.writers import MultiWriter, Writer, console
from jaxrl.parallel import coordination, cpu_devices, process_group
from jaxrl.parallel.sharding import Topology
from jaxrl.parallel.signals import Interruption
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.rollout.host.waiting import Cancelled
from jaxrl.runs.folder import RunFolder
from jaxrl.training import nonfinite, runtimes, warm_start
from jaxrl.training.checkpointing import Keeper, Progress, summary
from jaxrl.training.iteration import hyperparams_of
from jaxrl.training.pipeline import MAX_IN_FLIGHT
from jaxrl.types import Array, TrainState, Trajectory

log = logging.getLogger(__name__)

# Without a checkpoint in between: what fails thrice from there will fail again.
MAX_ROLLBACKS = 3
# In a row, of which `nonfinite="skip"` dropped every update: nothing is learnt any more.
MAX_IDLE_ITERATIONS = 100


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
      state: the `TrainState`; replaced, and its buffers donated, by every step.
      policy, env: what is trained, on what.
      interruption: looked at between dispatches, to save and stop when a signal asks for it.
      interrupted: whether that ended `fit`.
      debug: also names the operation that made a NaN.
    """

    def __init__(
        self, config: ConfigDict | Config, folder: RunFolder | None = None, writer: Writer | None = None
    ):
        """Builds and checks everything; compiles nothing yet.

        Args:
          config: as from a config file, or already resolved.
          folder: where checkpoints go, and what to resume from; None keeps nothing.
          writer: receives the metrics; None prints them.

        Raises:
          ConfigError: the configuration is wrong.
        """
        if isinstance(config, ConfigDict):
            config = resolve(config, config.num_devices or largest_device_count(config, jax.device_count()))
        self.config = config
        self.folder = folder
        self._writer = writer
        self.debug = False
        self.clock = Clock()
        self._meter = resources.Meter(cpu_devices.available_cores())
        self.topology = Topology.of(config.device_count)
        self._agreement = coordination.Agreement(self.clock, self.topology.gatherer())
        self.runtime = runtimes.build(config, self.topology, self.clock, self._agreement)
        self.env, self.policy, self.program = self.runtime.env, self.runtime.policy, self.runtime.program
        self._evaluators = runtimes.Evaluators(config, self.policy, self.topology, self._agreement.gives_up)
        self._state: TrainState | None = None
        self._totals: EpisodeTotals | None = None
        self._keeper = Keeper(folder, config)
        self._rollbacks = 0
        self._last_updated = (0, 0.0)
        self.iteration = 0
        self.interrupted, self._evaluated_at = False, -1
        self.last_evaluation: Result | None = None
        self._resumed_steps = 0

    @property
    def state(self) -> TrainState:
        if self._state is None:
            self._state = self.program.initial_state()
        return self._state

    @property
    def interruption(self) -> Interruption:
        return self._agreement.interruption

    @interruption.setter
    def interruption(self, interruption: Interruption) -> None:
        self._agreement.interruption = interruption

    @property
    def writer(self) -> Writer:
        """Where metrics go; the display appears with the first use, not before."""
        if self._writer is None:
            self._writer = console(self.config) if process_group.is_first() else MultiWriter(())
        return self._writer

    @writer.setter
    def writer(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def steps(self) -> int:
        """Environment steps taken."""
        return self.iteration * self.config.steps_per_iteration

    @property
    def _skips(self) -> bool:
        return self.config.nonfinite == "skip"

    @property
    def progressed(self) -> bool:
        """Whether this process has trained, or only found the budget used up."""
        return self.steps > self._resumed_steps

    def rollout(self) -> Trajectory:
        """Steps the environments by one rollout and returns it, as global arrays [T, num_envs, ...]."""
        self._state, trajectory, self._totals = self.runtime.rollout(self.state)
        return trajectory

    def update(self, trajectory: Trajectory) -> dict[str, float]:
        """Runs all updates of one iteration on a trajectory of `rollout()`; returns its metrics."""
        if self._totals is None:
            raise RuntimeError("update() needs the trajectory of a rollout() before it")
        self._state, metrics = self.program.update(self.state, trajectory, self._totals)
        self._totals = None
        self.iteration += 1
        return rows.averages(jax.device_get(metrics) | {"iterations": 1}, self._skips)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes metrics at the current step."""
        self.writer.write(self.steps, {"steps": self.steps, **metrics})

    def evaluate(self, episodes: int | None = None, sample: bool = False) -> Result:
        """Plays whole episodes with the current policy and frozen normaliser."""
        return Result.of(self._evaluators.play("eval/", self.state, self.iteration, episodes, sample))

    def close(self) -> None:
        """Ends environments on the host, where a loop of your own has used them; `fit` does so by itself."""
        self.runtime.close()

    def fit(self) -> dict[str, Any]:
        """Trains until a budget is used up or the target return is reached; returns the summary.

        Begins with `start()`, unless that or steps of your own came before.

        Raises:
          NonFiniteError: a NaN or an infinity appeared, and `nonfinite` is "halt".
          SaveError: the final state could not be saved.
          RunError: an environment on the host failed; the state before it is saved.
        """
        try:
            return self._fit()
        except HostEnvError as error:
            self._drain(0)
            self._save(last=True)
            self.writer.flush()
            raise RunError(str(error)) from error
        finally:
            self.runtime.close()

    def _fit(self) -> dict[str, Any]:
        if self._state is None:
            self.start()
        self._agreement.begin()
        if (reason := self._stop_reason()) is not None and self.last_evaluation is not None:
            self.writer.status("nothing to do: the run has used up its budget")
            log.info("nothing to do at step %d: %s", self.steps, reason)
            return self._finish(reason)
        self._compile()
        traces = self._traces()
        with self.interruption.deferred():
            while (reason := self._stop_reason()) is None or not self._drain(0):
                if self.interruption.takes_trace():
                    traces.request(self.iteration, exact=process_group.num_processes() == 1)
                traces.step(self.iteration, self._state)
                self._dispatch(traces.edge())
                evaluate = self._due(self.config.evaluate_iterations)
                # The checkpoint of the final state comes after its evaluation, whenever that is due.
                final = self.iteration >= self.config.num_iterations
                save = self._due(self.config.checkpoint_iterations) and not final
                # The host reads old metrics while the devices work, and waits for them only at an event.
                if not self._drain(0 if evaluate or save else MAX_IN_FLIGHT - 1):
                    continue
                if evaluate and not self._evaluate_and_report():
                    continue
                if save:
                    self._save()
            traces.close()
            self.runtime.close()
            self.interrupted = reason == self.interruption.name
            return self._leave(reason) if self.interrupted else self._finish(reason)

    def _dispatch(self, at_most: int) -> None:
        """Hands the devices the iterations to the next event or `at_most`, or fewer where these take long."""
        target = self.runtime.fits(self.iteration, min(self.config.next_event(self.iteration), at_most))
        closes_row = target % self.config.log_iterations == 0
        dispatched = self.runtime.dispatch(self.state, self.iteration, target, closes_row)
        self._state, self.iteration = dispatched

    def _drain(self, at_most: int) -> bool:
        """Waits until `at_most` dispatches are in flight and logs their rows.

        Returns:
          False where one met a NaN and the run was rolled back, so that nothing is due any more.
        """
        for dispatch in self.runtime.finished(at_most):
            if dispatch.failed:
                self.iteration = int(self.state.iteration)
                self._recover()
                return False
            if dispatch.closes_row:
                self._report(dispatch.iteration, dispatch.sums)
        return True

    def _recover(self) -> None:
        """After a NaN or an infinity; the state is the one before the iteration in which it appeared."""
        if self.config.nonfinite == "halt" or self._rollbacks == MAX_ROLLBACKS:
            self._halt()
        self._rollbacks += 1
        failed_at = self.iteration
        self.runtime.close()
        if self._restore() is None:
            self._state, self.iteration = self.program.initial_state(), 0
            self.runtime.sums = self.program.no_metrics()
        key = jax.random.fold_in(self.state.key, self._rollbacks)
        self._state = dataclasses.replace(self.state, key=self.topology.replicate(key))
        message = "iteration %d was not finite: back to step %d, on with other random numbers (%d of %d)"
        self.writer.resume_from(self.steps)
        log.warning(message, failed_at + 1, self.steps, self._rollbacks, MAX_ROLLBACKS)

    def _halt(self) -> NoReturn:
        """Saves the state, says where the first value that is not finite comes from, and gives up."""
        self._save()
        self.writer.status("looking for the first value that is not finite")
        rollout = self.runtime.culprit(self.state)
        finding = nonfinite.diagnose(self.program, self.state, rollout, self.debug)
        self._keeper.write_report("nonfinite", dataclasses.asdict(finding))
        raise nonfinite.NonFiniteError(str(finding))

    def start(self) -> None:
        """Takes the state to train from: the first of these that there is.

        1. The newest intact checkpoint in the run's own folder: everything goes on as it was.
        2. `init_from`: parameters and normaliser of another run, where `init_names` match; the rest fresh.
        3. Fresh, from the seed.

        Raises:
          CheckpointError: what is there does not fit the configuration, or none of it is intact.
        """
        if (progress := self._restore()) is not None:
            self._resumed_steps = self.steps
            self.clock.carry_over(progress.seconds)
            self.writer.resume_from(self.steps)
            log.info("resumed from the checkpoint of step %d", self.steps)
        elif self.config.init_from:
            self._state, report = warm_start.load(self.config.init_from, self.config.init_names, self.state)
            self.writer.status(f"starting from {report}")

    def _restore(self) -> Progress | None:
        """Takes up the newest intact checkpoint of the folder; None where there is none."""
        found = self._keeper.restore(self.program.abstract_state(), self.program.no_metrics())
        if found is None:
            return None
        state, progress = found
        # The numbers of today's config hold, also where they differ from the stored ones.
        hyperparams = self.topology.replicate(hyperparams_of(self.config))
        self._state = dataclasses.replace(state, hyperparams=hyperparams)
        self.iteration, self.runtime.sums = progress.iteration, self.topology.replicate(dict(progress.sums))
        self.last_evaluation = progress.evaluation
        self._evaluated_at = self.iteration if progress.evaluation else -1
        return progress

    def _compile(self) -> None:
        """Compiles training, evaluation and the initial state side by side; XLA compiles outside the GIL."""
        self.writer.status("compiling the training program")
        with self.clock.measure("compile"), ThreadPoolExecutor(3) as pool:
            training = pool.submit(self.runtime.compile)
            abstract = self.program.abstract_state()
            arguments = abstract.params, abstract.obs_stats, self.config.evaluate.episodes
            jobs = [training, *(pool.submit(each.compile, *arguments) for each in self._evaluators)]
            self._state = self.runtime.prepare(self.state)
            _ = [job.result() for job in jobs]
            self._agreement.begin()  # The others compile for as long as they compile.
        log.info("compiled in %.1f s", self.clock.seconds("compile"))
        self.writer.status("training")

    def _traces(self) -> Traces:
        folder = self.folder.trace_folder if self.folder is not None and process_group.is_first() else None
        programs = lambda: (self.runtime.compiled, *self._evaluators.compiled)  # noqa: E731
        return Traces(folder, self.config.profile_window, programs, self.writer.message, self.clock)

    def _due(self, every: int) -> bool:
        return every > 0 and self.iteration % every == 0

    def _stop_reason(self) -> str | None:
        stop = self.config.stop
        evaluation = self.last_evaluation
        if self._agreement.signum is not None and self.iteration < self.config.num_iterations:
            return self.interruption.name
        if stop.target_return is not None and evaluation and evaluation.mean >= stop.target_return:
            return "return"
        if self.iteration >= self.config.num_iterations:
            return "steps"
        if stop.seconds is not None and self._agreement.seconds >= stop.seconds:
            return "seconds"
        return None

    def _report(self, iteration: int, sums: Mapping[str, Array]) -> None:
        with self.clock.measure("train"):  # with writing: the devices go on meanwhile
            values = rows.averages(jax.device_get(sums), self._skips)
            steps = iteration * self.config.steps_per_iteration
            made = int(sums["iterations"]) * self.config.steps_per_iteration
            row = {"steps": steps, **values, "time/steps_per_second": self.clock.rate("train", made)}
            self.writer.write(steps, row | self.clock.row() | self._meter.read() | self.runtime.shares())
        if self._skips:
            self._require_progress(iteration, values["ppo/updates"])

    def _require_progress(self, iteration: int, updates: float) -> None:
        """Ends a run all of whose updates have been dropped for long."""
        since, made = self._last_updated
        if updates > made:
            self._last_updated = (iteration, updates)
        elif iteration - since >= MAX_IDLE_ITERATIONS:
            self._halt()

    def _evaluate_and_report(self) -> bool:
        """Evaluates; returns False where a signal asked not to wait for that."""
        self.writer.status("evaluating")
        try:
            with self.clock.measure("evaluate"), host_phase("evaluate"):
                result, row, samples = self._evaluators(self.state, self.iteration)
        except Cancelled:
            return False
        self.last_evaluation = result
        self._evaluated_at = self.iteration
        self.writer.write(self.steps, row | self.clock.row())
        self.writer.histograms(self.steps, samples)
        self.writer.status("training")
        log.info("step %d: greedy return %.2f (std %.2f)", self.steps, result.mean, result.std)
        return True

    def _save(self, last: bool = False) -> None:
        """Saves the state, unless it is; what fails is warned of, with `last` raised."""
        if self.folder is None:
            return
        news = self._keeper.saved_at != self.iteration
        save = self._keeper.save_last if last else self._keeper.save
        with self.clock.measure("save"), host_phase("checkpoint"):
            saved = save(self.state, self._progress())
        if saved and news:
            self._rollbacks = 0
            self.writer.write(self.steps, {"checkpoint/step": self.steps} | self.clock.row())

    def _progress(self) -> Progress:
        evaluation = self.last_evaluation if self._evaluated_at == self.iteration else None
        return Progress(self.iteration, self.steps, self.clock.total(), evaluation, self.runtime.sums)

    def _leave(self, reason: str) -> dict[str, Any]:
        """Saves at once: whoever sent the signal does not wait for an evaluation."""
        self.writer.status(f"{reason}: saving")
        self._save(last=True)
        self.writer.flush()
        log.info("stopped at step %d by %s", self.steps, reason)
        return {"stop_reason": reason, "steps": self.steps, "seconds": round(self.clock.total(), 3)}

    def _finish(self, reason: str) -> dict[str, Any]:
        """A last row, evaluation and checkpoint of the final state, where the schedule left none."""
        if int(self.runtime.sums["iterations"]):
            self._report(self.iteration, self.runtime.sums)
            self.runtime.sums = self.program.no_metrics()
        if self._evaluated_at != self.iteration and not self._evaluate_and_report():
            self.interrupted = True
            return self._leave(str(self.interruption.name))
        self._save(last=True)
        self.writer.flush()
        log.info("stopped at step %d: %s", self.steps, reason)
        facts = self.last_evaluation, self.steps, self._resumed_steps, self.topology.description
        return {"stop_reason": reason, **summary(self.config, self.clock, *facts)}
