"""The start of a run: from its own checkpoint, another run, or its seed."""

from __future__ import annotations

import dataclasses
import logging

from jaxrl.config import Config
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.runs.folder import RunFolder
from jaxrl.training import warm_start
from jaxrl.training.checkpoints import Restored, RunCheckpoints
from jaxrl.training.progress import Progress
from jaxrl.types import LearnerState, TrainState

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StartingPoint:
    """The state and progress that a run starts with.

    Attributes:
      state: on the devices; None stands for the first state from the seed, which a run makes while its
        programs are compiled.
      progress: how far the run is.
      continues: true if it continues where a run was, with all that the state remembers.
      origin: its source, for people; empty if there is nothing to say.
      changes: see `Restored`.
    """

    state: TrainState | None
    progress: Progress
    continues: bool = False
    origin: str = ""
    changes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Start:
    """Finds the starting point of a run; also where it returns to when it is rolled back."""

    config: Config
    learning: ShardedLearning
    checkpoints: RunCheckpoints

    def find(self) -> StartingPoint:
        """The first of these that there is.

        1. The newest intact checkpoint in the run's own folder: everything continues as it was.
        2. `resume_from`: the same from a checkpoint of another folder.
        3. `init_from`: parameters and normaliser of another run, if `init_names` match; the rest fresh.
        4. Fresh, from the seed.

        Raises:
          CheckpointError: the state that is there does not fit the configuration, or none of it is intact.
          ConfigError: `resume_from` is of another task, network or seed.
        """
        config = self.config
        if (own := self.checkpoints.restore()) is not None:
            return _continue(own, "its own checkpoint")
        if config.resume_from:
            other = self.checkpoints.read("resume_from", config.resume_from)
            return _continue(other, config.resume_from)
        progress = Progress(self.learning.empty_interval())
        _, teacher = self.learning.algorithm.teacher
        if not (config.init_from or teacher):
            return StartingPoint(None, progress)
        state = self.learning.initial_state()
        origin = ""
        learner = state.learner
        if teacher:
            learner = self._with_teacher(learner)
        if config.init_from:
            learner, report = warm_start.load(config.init_from, config.init_names, learner)
            origin = str(report)
        return StartingPoint(dataclasses.replace(state, learner=learner), progress, origin=origin)

    def _with_teacher(self, learner: LearnerState) -> LearnerState:
        """With the whole policy of another run as the teacher of this one."""
        algorithm = self.learning.algorithm
        field, folder = algorithm.teacher
        taught: LearnerState = algorithm.with_teacher(learner, warm_start.policy(field, folder, learner))
        return taught


def _continue(found: Restored, origin: str) -> StartingPoint:
    return StartingPoint(found.state, found.progress, True, origin, found.changes)


def keep_earlier_rows(folder: RunFolder) -> None:
    """Says that a run restarts if one was killed before its first checkpoint, and keeps its rows."""
    if not folder.was_started:
        return
    text = "the earlier run here ended before its first checkpoint, so this one starts from step 0"
    try:
        names = folder.set_rows_aside()
    except OSError as error:
        log.warning("%s; its rows are lost: %s", text, error)
        return
    log.warning("%s%s", text, f"; its rows are now in {' and '.join(names)}" if names else "")
