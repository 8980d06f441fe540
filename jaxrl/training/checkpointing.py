"""What a run keeps of itself: checkpoints of its state and progress, and the way back to them."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

import jax

from jaxrl.config import Config, to_json, versions
from jaxrl.evaluation.evaluator import Result
from jaxrl.metrics import resources, rows
from jaxrl.metrics.clock import Clock
from jaxrl.runs.checkpoint import SaveError
from jaxrl.runs.folder import RunFolder
from jaxrl.types import TrainState

# The last checkpoint is worth more than one try.
_PAUSES = (0.5, 1.0)

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
      iteration: rollouts finished.
      steps: environment steps taken.
      seconds: since the start of the run, those before resumes included.
      evaluation: that of this very state, or None.
      sums: metrics of the log interval that is open.
    """

    iteration: int
    steps: int
    seconds: float
    evaluation: Result | None
    sums: Mapping[str, Any]


def summary(
    config: Config, clock: Clock, evaluation: Result | None, steps: int, resumed_steps: int, device: str
) -> dict[str, Any]:
    """What is said of a run in the end; `resumed_steps` of its `steps` were made before it was resumed."""
    assert evaluation is not None
    trained = clock.seconds("train")
    return {
        "steps": steps,
        "seconds": round(clock.total(), 3),
        "compile_seconds": round(clock.seconds("compile"), 3),
        "steps_per_second": round((steps - resumed_steps) / trained) if trained else 0,
        "eval_return": evaluation.mean,
        "eval_return_std": evaluation.std,
        "eval_episodes": evaluation.episodes,
        "seed": config.seed,
        "environment": config.env.name,
        "device": device,
        "peak_memory_bytes": resources.peak_memory(),
        "versions": versions(),
    }


class Keeper:
    """Saves and restores; without a folder it keeps nothing."""

    def __init__(self, folder: RunFolder | None, config: Config) -> None:
        self._folder = folder
        self._config = config
        self.saved_at = -1  # iteration

    def save(self, state: TrainState, progress: Progress) -> bool:
        """Starts saving what is not saved yet; returns whether it is, and warns where that failed.

        Training goes on then, and the next interval tries again.
        """
        try:
            self._save(state, progress)
        except SaveError as error:
            log.warning("step %d: no checkpoint, training continues: %s", progress.steps, error)
            return False
        return True

    def save_last(self, state: TrainState, progress: Progress) -> bool:
        """Saves the state that training ends with, waits until it is written, and returns True.

        Raises:
          SaveError: it failed several times.
        """
        for pause in (*_PAUSES, None):
            try:
                self._save(state, progress)
                if self._folder is not None:
                    self._folder.checkpoints.wait()
                return True
            except SaveError as error:
                self.saved_at = -1
                if pause is None:
                    raise
                log.warning("step %d: no checkpoint, trying again: %s", progress.steps, error)
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def restore(
        self, abstract_state: TrainState, empty: Mapping[str, Any]
    ) -> tuple[TrainState, Progress] | None:
        """The newest intact checkpoint; None where there never was one.

        Args:
          abstract_state: shapes, dtypes and shardings.
          empty: the metrics' names and dtypes.

        Raises:
          CheckpointError: it does not fit the configuration, or none of several is intact.
        """
        found = self._folder.checkpoints.restore_latest(abstract_state) if self._folder else None
        if found is None:
            return None
        step, state, meta = found
        evaluation = Result(**meta["evaluation"]) if meta["evaluation"] else None
        self.saved_at = int(meta["iteration"])
        sums = rows.from_json(meta["sums"], empty)
        return state, Progress(self.saved_at, step, meta["seconds"], evaluation, sums)

    def write_report(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes NAME.json into the run's folder."""
        if self._folder is not None:
            self._folder.write_report(name, content)

    def _save(self, state: TrainState, progress: Progress) -> None:
        if self._folder is None or self.saved_at == progress.iteration:
            return
        evaluation = progress.evaluation
        meta = {
            "config": to_json(self._config),
            "iteration": progress.iteration,
            "seconds": progress.seconds,
            "evaluation": dataclasses.asdict(evaluation) if evaluation else None,
            "sums": rows.to_json(jax.device_get(progress.sums)),
        }
        score = evaluation.mean if evaluation else None
        self._folder.checkpoints.save(progress.steps, state, meta, score)
        self._folder.send_logs()
        self.saved_at = progress.iteration
        log.info("step %d: saving a checkpoint", progress.steps)
