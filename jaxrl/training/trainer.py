"""The trainer: everything that one run takes, and the steps for a custom loop."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import jax
from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, largest_device_count, resolve
from jaxrl.config.errors import did_you_mean
from jaxrl.config.fields import at_least, check
from jaxrl.config.resolution import require_config
from jaxrl.evaluation.result import Result, add_means, deciding_mode, mode_name
from jaxrl.metrics import reduction
from jaxrl.metrics.tracing import Traces
from jaxrl.parallel.process_group import is_first
from jaxrl.programs import memory
from jaxrl.programs.hyperparameters import with_hyperparameters
from jaxrl.programs.runtime import Runtime
from jaxrl.reporting.writers import Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.callbacks import Callbacks, notify
from jaxrl.training.checkpoints import RunCheckpoints, StartingPoint, write_run
from jaxrl.training.coordination import Schedule
from jaxrl.training.dispatch_queue import DispatchQueue
from jaxrl.training.loop import TrainingLoop
from jaxrl.training.nonfinite import Recovery
from jaxrl.training.plan import TrainingPlan
from jaxrl.training.progress import Progress
from jaxrl.training.reporter import Reporter
from jaxrl.training.run_state import RunState, StateSaver
from jaxrl.training.start import find_start, keep_earlier_rows, stored_stage, with_stored_plan
from jaxrl.types import EpisodeTotals, LearnerState, TrainState, Trajectory

log = logging.getLogger(__name__)

_ATTRIBUTES = ("config", "folder", "callbacks", "agent")  # those that the class does not show
# What other trainers call ours.
_OTHER_NAMES = dict.fromkeys(("train", "learn"), "fit()") | {
    "training_step": "update(rollout())",
    "predict": "jaxrl.load(folder).act(obs)",
    "mean_and_log": "log(metrics), which `update` has averaged",
    "save_checkpoint": "save(folder)",
    "load_checkpoint": "load(folder)",
}


class Trainer:
    """Trains one policy on all devices.

    `fit()` does everything. For a custom loop:

        trainer = Trainer(config)
        for _ in range(trainer.config.num_iterations):
            trajectory = trainer.rollout()
            metrics = trainer.update(trajectory)
            trainer.log(metrics)

    Between iterations `set` changes hyperparameters, `save` writes the state and `load` takes one. The first
    step begins with `start()`, as `fit` does, unless that or `load` came before.
    """

    def __init__(
        self,
        config: ConfigDict | Config,
        folder: RunFolder | None = None,
        writer: Writer | None = None,
        assembly: Assembly | None = None,
        debug: bool = False,
        callbacks: Callbacks[Trainer] = Callbacks(),  # noqa: B008
    ):
        """Builds and checks everything; compiles nothing yet.

        Args:
          config: as from a config file, or already resolved.
          folder: where checkpoints go, and what to resume from; None keeps nothing.
          writer: receives the metrics; None prints them.
          assembly: the assembly to drive; None builds it from `config`.
          debug: also name the operation that made a NaN.
          callbacks: functions that `fit` calls.

        Raises:
          ConfigError: the configuration is wrong.
        """
        require_config(config)
        if isinstance(folder, str | os.PathLike):
            raise ConfigError(f"`folder` (={folder!r}) must be a RunFolder; `save(folder)` writes the state")
        if not isinstance(callbacks, Callbacks):
            raise ConfigError(f"`callbacks` (={callbacks!r}) must be jaxrl.Callbacks(on_iteration=...)")
        if isinstance(config, ConfigDict):
            config = resolve(config, config.num_devices or largest_device_count(config, jax.device_count()))
        config = config if assembly else with_stored_plan(config, folder)
        self._plan = TrainingPlan.of(config)
        assembly = assembly or Assembly.build(self._plan.configs[0])
        self.config = config
        self.folder = folder
        self.callbacks = callbacks
        self.agent = assembly.runtime.agent
        self._writer = writer
        self._debug = debug
        self._run = RunState(self._plan.configs[0].steps_per_iteration, assembly.runtime.learning)
        self._assemblies = assembly.of_stages(self._plan)
        self._checkpoints = RunCheckpoints(folder, assembly.learning)
        self._enter(0)
        self._totals: EpisodeTotals | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for what no trainer has: it would be accepted and do nothing."""
        if not (name.startswith("_") or name in _ATTRIBUTES or hasattr(type(self), name)):
            raise AttributeError(f"a trainer has no `{name}` to set{self._hint(name)}")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a trainer has no `{name}`{self._hint(name)}")

    def _hint(self, name: str) -> str:
        """Ends an error about what a trainer lacks."""
        if name in _OTHER_NAMES:
            return f": it is {_OTHER_NAMES[name]}"
        config = vars(self).get("config")  # None before it has one.
        if config is not None and hasattr(config.learner, name):
            return f": it is set({name}=...)"
        return did_you_mean(name, [x for x in (*dir(type(self)), *_ATTRIBUTES) if not x.startswith("_")])

    def __repr__(self) -> str:
        return f"<Trainer: {self.config.algorithm} on {self.config.env.name}, {self.steps:,} steps>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a trainer is neither copied nor pickled: use save(folder) and load(folder)")

    @property
    def state(self) -> TrainState:
        """The `TrainState`; replaced, and its buffers donated, by every step. The first is `start`'s."""
        if self._run.is_untouched:
            self.start()
        return self._run.state

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._run.progress

    @property
    def interrupted(self) -> bool:
        """True if a signal ended `fit`."""
        return self._run.interrupted

    @property
    def steps(self) -> int:
        """Environment steps taken; updates made, if the algorithm steps no environments."""
        return self._run.steps

    @functools.cached_property
    def writer(self) -> Writer:
        """The writer that gets the metrics; the display appears with the first use, not before."""
        return self._assembly.display() if self._writer is None else self._writer

    def rollout(self) -> Trajectory:
        """Steps the environments by one rollout and returns it, as global arrays [T, num_envs, ...].

        Raises:
          RuntimeError: the algorithm steps no environments.
        """
        state = self._assembly.at_present(self.state)
        with self._assembly.clock.measure("train"):
            if self.config.refreshes(self.progress.iteration):
                state = self._runtime.refresh(state)
            state, trajectory, self._totals = self._runtime.rollout(state)
        if trajectory is None:
            raise RuntimeError(f"{self.config.algorithm} steps no environments: call update() alone")
        self._run.replace(state)
        return trajectory

    def update(self, trajectory: Trajectory | None = None) -> dict[str, float]:
        """Learns from a `rollout()`, None if the algorithm steps no environments; returns the metrics."""
        if self.config.collects and (not isinstance(trajectory, Trajectory) or self._totals is None):
            raise RuntimeError("update() needs the trajectory of a rollout() before it")
        state = self.state if self.config.collects else self._assembly.at_present(self.state)
        with self._assembly.clock.measure("train"):
            state, metrics = self._runtime.learning.update(state, trajectory, self._totals)
            found = reduction.row(metrics)  # Waits for the devices.
        self._assembly.clock.end_warm_up()
        self._totals = None
        self._run.advance(state, self.progress.iteration + 1)
        return found

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes metrics at the current step."""
        self.writer.write(self.steps, {"steps": self.steps, **metrics})

    def evaluate(self, episodes: int | None = None, sample: bool | None = None) -> Result:
        """Plays whole episodes with the current policy and frozen normaliser.

        Args:
          episodes: how many; None for `evaluate.episodes`.
          sample: True samples actions, False takes the most likely ones; None plays in all of
            `evaluate.modes` and returns the result of the mode with the higher return, over the last
            evaluations of `fit` and this one.

        Raises:
          ConfigError: `episodes` is no number of them.
        """
        if episodes is not None:
            episodes = check("episodes", episodes, int, at_least(1))
        policy = self.state.learner.policy
        modes = None if sample is None else (mode_name(sample),)
        played = self._assembly.evaluators.play("eval/", policy, self.progress.iteration, episodes, modes)
        results = {mode: Result.of(found, mode) for mode, found in played.items()}
        means = {mode: result.mean for mode, result in results.items()}
        return results[deciding_mode(add_means(self.progress.recent_returns, means))]

    def set(self, **hyperparameters: float) -> None:
        """Changes hyperparameters from the next iteration on, such as `set(learning_rate=1e-4)`.

        They are part of the state: checkpoints keep them. A learning rate is exactly the next update's;
        a schedule that falls continues falling from there. During a warm-up it is the rate at its end.

        Raises:
          ConfigError: there is no such hyperparameter, or its field does not allow the value.
        """
        config, learning = self._assembly.config, self._runtime.learning
        self._run.replace(
            with_hyperparameters(config, learning.algorithm, learning.topology, self.state, hyperparameters)
        )
        log.info("step %d: %s", self.steps, hyperparameters)

    def adopt(self, learner: LearnerState) -> None:
        """Continues with another run's learner; the environments stay where they are."""
        self._run.adopt(learner)

    def postpone_evaluation(self) -> None:
        """Forgets the evaluation of this state; `fit` makes it again once the run is resumed."""
        self._run.postpone_evaluation()

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Writes the whole state as a run folder, which `load`, `resume_from` and all commands take.

        Args:
          path: local or gs://; states of later steps may be added to it.
          metadata: JSON values to keep with it.

        Raises:
          ConfigError: the folder cannot be written, or holds another run or this very step.
          SaveError: the checkpoint could not be written.
        """
        state = self.state  # Of a trainer that has not begun, before the progress.
        write_run(path, self.config, self._assembly.learning, state, self._saver.progress(), metadata or {})

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Takes the whole state of a run, its newest or of `RUN/checkpoints/STEP`; returns its metadata.

        Schedules follow this trainer's configuration, whatever that of the run was.

        Raises:
          CheckpointError: there is none, it is damaged, or its arrays do not fit the configuration.
          ConfigError: it is of another task, network or seed.
        """
        if self._plan.stages:
            self._enter(stored_stage(None, path))
        found = self._checkpoints.read("path", path)
        self._plan.require(found.progress.stage)
        self._begin(found)
        return dict(found.metadata)

    def close(self) -> None:
        """Ends the display and environments on the host after a custom loop; `fit` does so by itself."""
        self._runtime.close()
        # The caller closes a writer that it passed in.
        if self._writer is None and (display := self.__dict__.pop("writer", None)):
            display.close()

    def start(self) -> None:
        """Takes the state to train from; `find_start` says which.

        Raises:
          CheckpointError: the state that is there does not fit the configuration, or none of it is intact.
        """
        if self._plan.stages:
            self._enter(stored_stage(self.folder, self.config.resume_from))
        point = find_start(self._checkpoints)
        # Another stage if the newest checkpoint was damaged, or stages were removed.
        if point.progress.stage != self._stage:
            self._plan.require(point.progress.stage)
            self._enter(point.progress.stage)
            point = find_start(self._checkpoints)
        self._begin(point)

    def _begin(self, point: StartingPoint) -> None:
        self._runtime.close()
        self._run.begin(point)
        self._totals = None
        self._queue.restart(self.progress.interval)
        if point.continues:
            self._assembly.clock.carry_over(self.progress.seconds, self.progress.trained_seconds)
            self.writer.resume_from(self.steps)
            log.info("resumed from the checkpoint of step %d: %s", self.steps, point.origin)
            for line in point.changes:
                self._say(line)
            return
        config = self._assembly.config
        endless = config.stop.steps is None and not config.follows_clock
        if endless and getattr(config.learner, "schedule", "constant") != "constant":
            self.writer.message("stop.steps and stop.seconds are none: the learning rate does not fall")
        if self.folder is not None and is_first():
            keep_earlier_rows(self.folder)
        if point.origin:
            self.writer.status(f"starting from {point.origin}")

    def fit(self) -> dict[str, Any]:
        """Trains until a budget is used up or the target return is reached; returns the summary.

        Begins with `start()`, unless that or custom steps came before.

        Raises:
          NonFiniteError: a NaN or an infinity appeared, and `nonfinite` is "halt".
          SaveError: the final state could not be saved.
          OutOfMemory: a program needs more memory than there is; the last checkpoint is kept.
          RunError: no step was made in time, or a host environment failed; the state before it is saved.
        """
        try:
            if self._run.is_untouched:
                self.start()
            summary = self._train()
            if self._writer is None:
                self.writer.finish(summary)
            return summary
        except jax.errors.JaxRuntimeError as error:
            if not memory.is_out_of_memory(error):
                raise
            raise memory.explain(error, self.config, self._runtime) from error
        finally:
            self.close()

    def _train(self) -> dict[str, Any]:
        if line := self._plan.announcement(self.progress.stage):
            self._say(line)
        notify(self.callbacks.on_start, self)
        while (summary := self._loop().train()) is None:
            self._change_stage()
        notify(self.callbacks.on_end, self, summary)
        return summary

    def _change_stage(self) -> None:
        """Enters the next stage, or returns to the checkpoint's after a rollback."""
        before = self._stage
        advances = self.progress.stage == before
        after = before + 1 if advances else self.progress.stage
        if self._assemblies[after].runtime is not self._runtime:
            if advances:
                self._saver.save()  # A signal may end the process while it compiles.
            self._runtime.close()
        self._enter(after)
        state = self._plan.state_of(self.state, before, after, self._runtime.learning)
        if advances:
            forgets = self._plan.configs[before].env != self._plan.configs[after].env
            self._run.begin_stage(state, self._assembly.coordinator.status.trained_seconds, forgets)
        else:
            self._run.replace(state)
        self._say(self._plan.beginning(before, after, self.steps, state.memory is not None))

    def _say(self, line: str) -> None:
        log.info("%s", line)
        self.writer.message(line)

    def _enter(self, stage: int) -> None:
        """Takes the programs of a stage, and what saves and dispatches with them."""
        self._stage = min(stage, self._plan.last)
        self._assembly = assembly = self._assemblies[self._stage]
        self._checkpoints = self._checkpoints.with_learning(assembly.learning)
        one_by_one = bool(self.callbacks.on_iteration)
        self._queue = DispatchQueue(self._runtime, assembly.clock, assembly.coordinator, one_by_one)
        self._saver = StateSaver(self._run, self._checkpoints, self._queue, assembly)

    def _loop(self) -> TrainingLoop:
        assembly = self._assembly
        folder = self.folder.trace_folder if self.folder is not None and is_first() else None
        window = assembly.config.profile_window
        return TrainingLoop(
            assembly=assembly,
            run=self._run,
            queue=self._queue,
            schedule=Schedule(self._plan, self._stage, assembly.coordinator),
            saver=self._saver,
            recovery=Recovery(self._runtime, self._checkpoints, self._debug),
            reporter=Reporter(assembly, self._run, self.writer),
            writer=self.writer,
            traces=Traces(folder, window, assembly.programs, self.writer.message, assembly.clock),
            trainer=self,
            callbacks=self.callbacks,
        )

    @property
    def _runtime(self) -> Runtime:
        return self._assembly.runtime
