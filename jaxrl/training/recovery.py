"""The way on after a NaN or an infinity: `nonfinite` is halt, skip or rollback."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import NoReturn

import jax

from jaxrl.config import Config, ConfigError
from jaxrl.programs.runtime import Runtime
from jaxrl.training import nonfinite
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.nonfinite import Finding
from jaxrl.training.progress import Progress
from jaxrl.training.start import find_start
from jaxrl.types import TrainState

# Rollbacks to one checkpoint: what fails three times from there will fail again.
MAX_ROLLBACKS = 3
# Iterations in a row whose updates were all dropped (`nonfinite="skip"`): nothing is learnt any more.
MAX_IDLE_ITERATIONS = 100

log = logging.getLogger(__name__)


class Recovery:
    """Goes back to a checkpoint, or says what is wrong and gives up."""

    def __init__(self, runtime: Runtime, checkpoints: RunCheckpoints, debug: bool) -> None:
        """`debug` also names the operation that made a NaN."""
        self._config: Config = checkpoints.config
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._debug = debug
        self._rollbacks = 0
        self._updated_at = 0  # iteration
        self._updates = 0.0

    @property
    def halts(self) -> bool:
        """True if the next NaN ends the run."""
        return self._config.nonfinite == "halt" or self._rollbacks == MAX_ROLLBACKS

    def note_checkpoint(self) -> None:
        """Notes that there is a newer state to go back to."""
        self._rollbacks = 0

    def roll_back(self, cause: str) -> tuple[TrainState, Progress]:
        """Returns the state and progress of the newest checkpoint, or of the start, with another random key.

        Args:
          cause: the value that was not finite, for people.
        """
        self._rollbacks += 1
        self._runtime.close()
        found = find_start(self._checkpoints)
        progress = found.progress
        state = found.state or self._runtime.learning.initial_state()
        key = jax.random.fold_in(state.key, self._rollbacks)
        state = dataclasses.replace(state, key=self._runtime.learning.topology.replicate(key))
        log.warning(
            "%s: back to step %d, with other random numbers (%d of %d)",
            cause,
            progress.iteration * self._config.steps_per_iteration,
            self._rollbacks,
            MAX_ROLLBACKS,
        )
        return state, progress

    def note_row(self, iteration: int, row: Mapping[str, float]) -> None:
        """Remembers the iteration of the latest row with new updates, if updates may be dropped."""
        if self._config.nonfinite != "skip":
            return
        updates = row[self._runtime.learning.algorithm.updates_metric]
        if updates > self._updates:
            self._updated_at = iteration
            self._updates = updates

    def has_stalled(self, iteration: int) -> bool:
        """True if all updates have been dropped for too long."""
        return self._config.nonfinite == "skip" and iteration - self._updated_at >= MAX_IDLE_ITERATIONS

    def give_up(self, state: TrainState, finding: Finding | None = None) -> NoReturn:
        """Writes a report of the first value that is not finite, and raises.

        Args:
          state: the one before the iteration in which it appeared.
          finding: the value; None looks for it.

        Raises:
          NonFiniteError: always.
        """
        finding = finding or nonfinite.diagnose(self._runtime, state, self._debug)
        self._checkpoints.finish()
        try:
            self._checkpoints.write_report("nonfinite", dataclasses.asdict(finding))
        except ConfigError as error:
            log.warning("there is no report: %s", error)
        raise nonfinite.NonFiniteError(str(finding))
