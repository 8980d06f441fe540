"""Checkpoints of a run: its state and progress, and the way back to them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

import jax

from jaxrl.config import Config, ConfigError, from_json, to_json
from jaxrl.runs.checkpoint import SaveError
from jaxrl.runs.folder import RunFolder
from jaxrl.training.progress import Progress
from jaxrl.training.sharded_learning import ShardedLearning
from jaxrl.types import PyTree, TrainState

# The last checkpoint is worth more than one try.
_PAUSES = (0.5, 1.0)

log = logging.getLogger(__name__)


class RunCheckpoints:
    """Saves and restores; without a folder it keeps nothing."""

    def __init__(self, folder: RunFolder | None, learning: ShardedLearning) -> None:
        self._folder = folder
        self._learning = learning
        self._config: Config = learning.learning.config
        self._saved_at = -1  # iteration

    def save(self, state: TrainState, progress: Progress) -> bool:
        """Starts saving; returns whether it did, and warns where that failed.

        Training continues then, and the next interval tries again. A saved state is not saved twice.
        """
        if self._is_saved(progress):
            return False
        try:
            self._save(state, progress)
        except SaveError as error:
            log.warning("step %d: no checkpoint, training continues: %s", self._steps(progress), error)
            return False
        return True

    def save_last(self, state: TrainState, progress: Progress) -> bool:
        """Saves the state that training ends with, and waits until it is written.

        Returns:
          Whether it was not saved already.

        Raises:
          SaveError: it failed several times.
        """
        if self._folder is None:
            return False
        saved = False
        for pause in (*_PAUSES, None):
            try:
                if not self._is_saved(progress):
                    self._save(state, progress)
                    saved = True
                self._folder.checkpoints.wait()
                return saved
            except SaveError as error:
                self._saved_at = -1
                if pause is None or error.stalled:
                    raise
                log.warning("step %d: no checkpoint, trying again: %s", self._steps(progress), error)
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def finish(self) -> None:
        """Waits until what was started is written, and warns where it was not; for a run that gives up."""
        if self._folder is not None:
            try:
                self._folder.checkpoints.wait()
            except SaveError as error:
                log.warning("%s", error)

    def restore(self) -> tuple[TrainState, Progress] | None:
        """The newest intact checkpoint, on the devices; None where there never was one.

        Raises:
          CheckpointError: it does not fit the configuration, or none of several is intact.
        """
        if self._folder is None:
            return None
        found = self._folder.checkpoints.restore_latest(self._learning.abstract_state(), self._check)
        if found is None:
            return None
        _, state, meta = found
        progress = Progress.from_json(meta, self._learning.learning.empty_interval())
        self._saved_at = progress.iteration
        replicate = self._learning.topology.replicate
        progress = dataclasses.replace(progress, interval=replicate(progress.interval))
        return self._with_changed_hyperparams(state, meta), progress

    def _check(self, meta: Mapping[str, Any]) -> None:
        """Raises an error of the value where a checkpoint's `meta` cannot be continued from in this run."""
        assert self._folder is not None
        Progress.check(meta)
        Progress.from_json(meta, self._learning.learning.empty_interval())
        with contextlib.suppress(ConfigError):  # Of another version: refused, but not damaged.
            from_json(meta["config"])
        ours = self._folder.identity
        if ours and (meta.get("run") or ours) != ours:
            seed = meta["config"].get("seed")
            raise ValueError(
                f"it was saved by another run (of seed {seed}; this one has {self._config.seed})"
            )

    def write_report(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes NAME.json into the run's folder."""
        if self._folder is not None:
            self._folder.write_report(name, content)

    def _with_changed_hyperparams(self, state: TrainState, meta: Mapping[str, Any]) -> TrainState:
        """Applies the numbers that the configuration has changed since; the others stay the state's own.

        The members of a population have numbers of their own, which no configuration knows.
        """
        of = self._learning.algorithm.hyperparameters

        def choose(own: jax.Array, then: jax.Array, now: jax.Array) -> jax.Array:
            replicated: jax.Array = self._learning.topology.replicate(now)
            return own if then == now else replicated

        hyperparams: PyTree = jax.tree.map(
            choose, state.learner.hyperparams, of(from_json(meta["config"])), of(self._config)
        )
        learner = dataclasses.replace(state.learner, hyperparams=hyperparams)
        return dataclasses.replace(state, learner=learner)

    def _is_saved(self, progress: Progress) -> bool:
        return self._folder is None or self._saved_at == progress.iteration

    def _save(self, state: TrainState, progress: Progress) -> None:
        assert self._folder is not None
        meta = {"run": self._folder.identity, "config": to_json(self._config)} | progress.to_json()
        evaluation = progress.evaluation_of_state
        score = evaluation.mean if evaluation else None
        self._folder.checkpoints.save(self._steps(progress), state, meta, score)
        self._folder.send_logs()
        self._saved_at = progress.iteration
        log.info("step %d: saving a checkpoint", self._steps(progress))

    def _steps(self, progress: Progress) -> int:
        return progress.iteration * self._config.steps_per_iteration
