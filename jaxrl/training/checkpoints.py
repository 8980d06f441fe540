"""Checkpoints of a run: its state and progress, and the way back to them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from jaxrl.config import Config, ConfigError, changed_fields, from_json, to_json, words
from jaxrl.config.errors import errors_as
from jaxrl.evaluation.result import Result
from jaxrl.programs.hyperparameters import with_budget, with_changed_numbers
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.runs.checkpoint import (
    Checkpointer,
    CheckpointError,
    SaveError,
    checkpoint_files,
    checkpoint_folder,
)
from jaxrl.runs.checkpoint.checkpoint_record import COMPARABLE_AFTER, MODE
from jaxrl.runs.folder import RunFolder
from jaxrl.training.plan import THAWED, other_jax, replanned, thawed, thaws
from jaxrl.training.progress import Progress
from jaxrl.types import TrainState

# The last checkpoint is worth more than one try.
_PAUSES = (0.5, 1.0)

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StartingPoint:
    """The state and progress that a run starts with, from a checkpoint or new.

    Attributes:
      state: on the devices; None stands for the first state from the seed, which a run makes while its
        programs are compiled.
      continues: true if it continues a run, with all that the state remembers.
      origin: its source, for people; empty if there is nothing to say.
      changes: lines on differences from the time of the save.
      metadata: the values that users stored with it.
    """

    state: TrainState | None
    progress: Progress
    continues: bool = False
    origin: str = ""
    changes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def find_checkpoint(name: str, path: str | os.PathLike[str]) -> epath.Path:
    """The folder of a checkpoint: `path`, or the newest one in the run's folder `path`, local or gs://.

    `name` is of what asks for it, for the error.

    Raises:
      CheckpointError: there is none.
    """
    if not os.fspath(path):
        raise CheckpointError(f"`{name}` (='') must name a folder")
    folder = checkpoint_folder.open_folder(epath.Path(path).expanduser())
    if (folder / checkpoint_folder.META).exists():
        return folder
    steps = checkpoint_folder.find(folder / "checkpoints").steps
    if not steps:
        beside = checkpoint_folder.find(folder.parent).steps if folder.name.isdecimal() else {}
        there = f"; available steps: {', '.join(map(str, beside))}" if beside else ""
        foreign = "" if beside else words.in_place_of_run(str(folder))
        raise CheckpointError(f"`{name}` (={folder}) {foreign or f'holds no checkpoint{there}'}")
    return steps[max(steps)]


class RunCheckpoints:
    """Saves and restores; without a folder it keeps nothing."""

    def __init__(
        self, folder: RunFolder | None, learning: ShardedLearning, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Saves nothing yet; `metadata` goes into every checkpoint, beside the configuration's notes.

        Raises:
          ConfigError: it cannot be written as JSON.
        """
        self._folder = folder
        with errors_as(ConfigError, "`metadata` must be plain JSON values", TypeError, ValueError):
            self._metadata: dict[str, Any] = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
        self.learning = learning
        self.config: Config = learning.per_device.config
        self._saved_at = -1  # iteration of the latest save

    def with_learning(self, learning: ShardedLearning) -> RunCheckpoints:
        """The checkpoints of the same run in another stage."""
        other = copy.copy(self)
        other.learning = learning
        other.config = learning.per_device.config
        return other

    @property
    def has_folder(self) -> bool:
        """True if there is a folder to save to."""
        return self._folder is not None

    def save(self, state: TrainState, progress: Progress) -> bool:
        """Starts saving; returns True if it did, and warns if that failed.

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
        """Saves the state that training ends with and waits for it; False if it was saved already.

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

    def save_score(self, progress: Progress, evaluation: Result) -> None:
        """Saves how good a state is that is saved already; a failure is a warning."""
        if self._folder is None or not self._is_saved(progress):
            return
        try:
            found = {MODE: evaluation.mode}
            self._folder.checkpoints.save_score(self._steps(progress), evaluation.mean, found)
        except (OSError, CheckpointError) as error:
            log.warning("step %d: its evaluation is not in its checkpoint: %s", self._steps(progress), error)

    def finish(self) -> None:
        """Waits until a save that was started is written, and warns if it failed; for a run that gives up."""
        if self._folder is not None:
            try:
                self._folder.checkpoints.wait()
            except SaveError as error:
                log.warning("%s", error)

    def restore(self) -> StartingPoint | None:
        """The newest intact checkpoint of the run; None if there never was one.

        Raises:
          CheckpointError: it does not fit the configuration, or none of several is intact.
        """
        if self._folder is None:
            return None
        found = self._folder.checkpoints.restore_latest(
            self._stored_part(self.learning.abstract_whole()), self._check
        )
        if found is None:
            return None
        _, state, meta = found
        restored = self._unpack(state, meta, "its own checkpoint")
        self._saved_at = restored.progress.iteration
        return restored

    def read(self, name: str, path: str | os.PathLike[str]) -> StartingPoint:
        """A checkpoint of another run, which stays as it is.

        Args:
          name: of what asks for it, for the error.
          path: a run's folder, for its newest checkpoint, or `RUN/checkpoints/STEP`.

        Raises:
          CheckpointError: there is none, it is damaged, or its arrays do not fit the configuration.
          ConfigError: it is of another task, network or seed.
        """
        found = find_checkpoint(name, path)
        if not checkpoint_files.is_step(found.name):
            raise CheckpointError(f"`{name}` (={path}) must be a run folder or one of its checkpoints/STEP")
        checkpointer = Checkpointer(str(found.parent), create=False)
        meta = checkpointer.meta(int(found.name))
        with errors_as(CheckpointError, f"`{name}` (={path}): the checkpoint {found} is damaged", ValueError):
            Progress.check(meta)
        if changed := changed_fields(from_json(meta["config"]), self.config):
            raise ConfigError(f"`{name}` (={path}) holds a run with {', '.join(changed)}")
        state, meta = checkpointer.restore(int(found.name), self._stored_part(self.learning.abstract_whole()))
        return self._unpack(state, meta, os.fspath(path))

    def _check(self, meta: Mapping[str, Any]) -> None:
        """Raises an error of the value if this run cannot continue from a checkpoint's `meta`."""
        assert self._folder is not None
        Progress.check(meta)
        Progress.from_json(meta, self.learning.per_device.empty_interval())
        with contextlib.suppress(ConfigError):  # Of another version: refused, but not damaged.
            from_json(meta["config"])
        ours = self._folder.identity
        if ours and (meta.get("run") or ours) != ours:
            seed = meta["config"].get("seed")
            raise ValueError(f"it was saved by another run (of seed {seed}; this one has {self.config.seed})")

    def write_report(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes NAME.json into the run's folder."""
        if self._folder is not None:
            self._folder.write_report(name, content)

    def _unpack(self, state: TrainState, meta: Mapping[str, Any], origin: str) -> StartingPoint:
        state = self.learning.divided(state)
        progress = Progress.from_json(meta, self.learning.per_device.empty_interval())
        interval = self.learning.topology.replicate(progress.interval)
        memory = self.learning.per_device.memory
        if state.memory is None and memory.state_type is not None:
            if not memory.checkpointed and not memory.refills:
                log.warning("checkpoints are without the memory: it starts empty")
            state = dataclasses.replace(state, memory=self.learning.empty_memory())
        earlier = from_json(meta["config"])
        topology = self.learning.topology
        changed = with_changed_numbers(self.learning.algorithm, topology, state, earlier, self.config)
        seconds = progress.trained_seconds
        before = with_budget(earlier, topology, state.learner, seconds)
        changed = dataclasses.replace(
            changed, learner=with_budget(self.config, topology, changed.learner, seconds)
        )
        return StartingPoint(
            state=thawed(changed, earlier, self.config),
            continues=True,
            origin=origin,
            changes=(
                *replanned(self.learning, before, changed.learner, earlier, self.config),
                *([THAWED] if thaws(earlier, self.config) else []),
                *other_jax(meta),
            ),
            progress=dataclasses.replace(progress, interval=interval),
            metadata=meta.get("metadata", {}),
        )

    def _stored_part(self, state: TrainState) -> TrainState:
        """The part of a state, or of its shapes, that checkpoints hold."""
        learner = dataclasses.replace(state.learner, elapsed=None, planned=None)
        state = dataclasses.replace(state, learner=learner)
        return (
            state if self.learning.per_device.memory.checkpointed else dataclasses.replace(state, memory=None)
        )

    def _is_saved(self, progress: Progress) -> bool:
        return self._folder is None or self._saved_at == progress.iteration

    def _save(self, state: TrainState, progress: Progress) -> None:
        assert self._folder is not None
        notes = {"notes": self.config.notes} if self.config.notes else {}
        meta = {
            "run": self._folder.identity,
            "config": to_json(self.config),
            "metadata": notes | self._metadata,
            MODE: progress.evaluation.mode if progress.evaluation else None,
            COMPARABLE_AFTER: progress.forgotten_at * self.config.steps_per_iteration,
            "jax": jax.__version__,
            **progress.to_json(),
        }
        evaluation = progress.evaluation_of_state
        score = evaluation.mean if evaluation else None
        self._folder.checkpoints.save(
            self._steps(progress), self._stored_part(self.learning.whole(state)), meta, score
        )
        self._folder.send_logs()
        self._saved_at = progress.iteration
        log.info("step %d: saving a checkpoint", self._steps(progress))

    def _steps(self, progress: Progress) -> int:
        return progress.iteration * self.config.steps_per_iteration


def write_run(
    path: str | os.PathLike[str],
    config: Config,
    learning: ShardedLearning,
    state: TrainState,
    progress: Progress,
    metadata: Mapping[str, Any],
) -> None:
    """Writes a state as the run folder `path` (local or gs://), which every command takes, and waits for it.

    `config` is of the whole run, that of `learning` of the state's stage; `metadata` are JSON values to keep.

    Raises:
      ConfigError: the folder cannot be written, is in use, or holds another run or this very step.
      SaveError: the checkpoint could not be written.
    """
    folder = RunFolder(os.path.expanduser(path), config.checkpoint.keep)
    folder.create()
    with folder.lock():
        folder.require_same(config)
        step = progress.iteration * config.steps_per_iteration
        if step in folder.checkpoints.all_steps():
            raise ConfigError(f"{path} holds a checkpoint of step {step} already: choose another folder")
        RunCheckpoints(folder, learning, metadata).save_last(state, progress)
        folder.write_config(config)
        folder.checkpoints.close()
