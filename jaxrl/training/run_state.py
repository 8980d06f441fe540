"""The state of a run: what it has learnt, and how far it is."""

from __future__ import annotations

import dataclasses

from jaxrl.evaluation.during_training import Evaluation
from jaxrl.evaluation.result import add_means
from jaxrl.metrics.tracing import host_phase
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints, StartingPoint
from jaxrl.training.dispatch_queue import DispatchQueue
from jaxrl.training.progress import Progress
from jaxrl.types import LearnerState, TrainState


class RunState:
    """Holds the `TrainState` and the `Progress` of a run; everything that works on the run shares one.

    Attributes:
      progress: how far it is.
      first_iteration: the one from which this process trains.
      interrupted: True if a signal ended training.
    """

    def __init__(self, steps_per_iteration: int, learning: ShardedLearning) -> None:
        """Begins at the seed; the first state is made when it is first asked for."""
        self._steps_per_iteration = steps_per_iteration
        self._learning = learning
        self._state: TrainState | None = None
        self.progress = Progress(learning.empty_interval())
        self._has_begun = False
        self.first_iteration = 0
        self.interrupted = False

    @property
    def state(self) -> TrainState:
        """The `TrainState`; replaced, and its buffers donated, by every step."""
        if self._state is None:
            self._state = self._learning.initial_state()
        return self._state

    @property
    def steps(self) -> int:
        """Environment steps taken."""
        return self.progress.iteration * self._steps_per_iteration

    @property
    def steps_of_process(self) -> int:
        """Environment steps taken since this process began the run, or resumed it."""
        return self.steps - self.first_iteration * self._steps_per_iteration

    @property
    def is_untouched(self) -> bool:
        """True if there is no state yet, and no starting point was taken."""
        return self._state is None and not self._has_begun

    def begin(self, point: StartingPoint) -> None:
        """Takes a starting point."""
        self._state = point.state
        self.progress = point.progress
        self._has_begun = True
        self.first_iteration = point.progress.iteration

    def advance(self, state: TrainState, iteration: int) -> None:
        """Takes the state at the end of `iteration`."""
        self._state = state
        self.progress = dataclasses.replace(self.progress, iteration=iteration, owes_evaluation=False)

    def begin_stage(self, state: TrainState, seconds: float, forgets: bool) -> None:
        """Takes the state with which the next stage begins, after `seconds` of training.

        With `forgets`, evaluations so far do not apply to the training from here on.
        """
        progress = self.progress
        if forgets:
            progress = dataclasses.replace(
                progress,
                evaluation=None,
                evaluated_at=-1,
                recent_returns={},
                best_return=None,
                best_at=-1,
                forgotten_at=progress.iteration,
            )
        self._state = state
        self.progress = dataclasses.replace(
            progress, stage=progress.stage + 1, stage_iteration=progress.iteration, stage_seconds=seconds
        )

    def drop_memory(self) -> None:
        """Frees the memory of the state, which is about to be replaced: the devices may not hold two."""
        self._state = dataclasses.replace(self.state, memory=None)

    def roll_back(self, state: TrainState, progress: Progress) -> None:
        """Returns to an earlier state."""
        self._state = state
        self.progress = progress

    def count_finite(self) -> None:
        """Counts the iterations up to the state, which is the one before an iteration that was not finite."""
        self.advance(self.state, int(self.state.iteration))

    def replace(self, state: TrainState) -> None:
        """Takes another state of the same iteration."""
        self._state = state

    def adopt(self, learner: LearnerState) -> None:
        """Takes what another run has learnt; no evaluation is known of it.

        The returns of the policy before it would otherwise share in the choice of its mode. Schedules
        follow the length of this run.
        """
        own = self.state.learner
        learner = dataclasses.replace(learner, elapsed=own.elapsed, planned=own.planned)
        self._state = dataclasses.replace(self.state, learner=learner)
        self.progress = dataclasses.replace(self.progress, evaluated_at=-1, recent_returns={})

    def record_evaluation(self, evaluation: Evaluation | None) -> None:
        """Records the evaluation of this state; None if it was not finite."""
        progress = self.progress
        recent = progress.recent_returns
        if evaluation is not None:
            recent = add_means(recent, {mode: x.mean for mode, x in evaluation.results.items()})
        self.progress = dataclasses.replace(
            progress,
            evaluation=None if evaluation is None else evaluation.deciding,
            evaluated_at=progress.iteration,
            recent_returns=recent,
            owes_evaluation=False,
        )

    def postpone_evaluation(self) -> None:
        """Records that this state is still to be evaluated, by the process that resumes the run."""
        self.progress = dataclasses.replace(self.progress, evaluated_at=-1, owes_evaluation=True)

    def record_save(self) -> None:
        """Records that this state is saved."""
        self.progress = self.progress.after_save()

    def record_end(self, interrupted: bool) -> None:
        """Records the end of training, by a signal or not."""
        self.interrupted = interrupted


class StateSaver:
    """Saves a run as it is now.

    Attributes:
      saved_at: `ProcessStatus.wall_seconds` at the latest save, or at the start of training.
    """

    def __init__(
        self, run: RunState, checkpoints: RunCheckpoints, queue: DispatchQueue, assembly: Assembly
    ) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._queue = queue
        self._clock = assembly.clock
        self._coordinator = assembly.coordinator
        self.saved_at = 0.0

    def begin(self) -> None:
        """Counts the time to the next save from now on."""
        self.saved_at = self._coordinator.status.wall_seconds

    def save(self, last: bool = False) -> bool:
        """Saves the state, unless it is saved or there is no folder; returns True if it did.

        With `last`, waits until the state is written and raises SaveError if that fails; else a failure is a
        warning.
        """
        self.begin()
        save = self._checkpoints.save_last if last else self._checkpoints.save
        with self._clock.measure("save"), host_phase("checkpoint"):
            saved = save(self._run.state, self.progress())
        if saved or not self._checkpoints.has_folder:
            self._run.record_save()
        elif last:
            self.save_score()
        return saved

    def save_score(self) -> None:
        """Saves how good the state is, if it was evaluated after it was saved; a failure is a warning.

        All else stays as it was saved: a process that resumes from there evaluates again, and then continues
        alike, whatever callbacks or other members have changed since.
        """
        evaluation = self._run.progress.evaluation_of_state
        if evaluation is not None:
            self._checkpoints.save_score(self._run.progress, evaluation)
            self._run.record_save()

    def progress(self) -> Progress:
        """The progress to store with the state."""
        return dataclasses.replace(
            self._run.progress.after_save(),
            seconds=self._clock.total(),
            trained_seconds=self._clock.trained_seconds(),
            interval=self._queue.interval,
        )
