"""Checkpoints of the whole training state, through Orbax; local folders and gs://.

Arrays are stored under their paths, not as Python objects, so that a checkpoint does not depend on the
classes of an environment or of the optimiser. `checkpoint_folder.py` reads and verifies checkpoints: every
restored array is, bit for bit, the one that was saved.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.config.errors import errors_as
from jaxrl.parallel import process_group, sharding
from jaxrl.runs.checkpoint import checkpoint_folder, state_arrays
from jaxrl.runs.checkpoint.background_save import BackgroundSave, SaveError
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.checkpoint_record import Record, describe
from jaxrl.runs.checkpoint.memory_item import MemoryItems
from jaxrl.runs.checkpoint.upkeep import FolderUpkeep

log = logging.getLogger(__name__)

# A save without any progress for this long is given up.
_STALLED_SECONDS = 30.0


class Checkpointer:
    """Saves and restores checkpoints of one run; keeps the last few and the one with the best score."""

    def __init__(
        self,
        folder: str,
        keep: int = 1,
        create: bool = True,
        gives_up: Callable[[float], bool] = lambda idle: idle > _STALLED_SECONDS,
    ) -> None:
        """Opens `folder`.

        Args:
          folder: a local path, absolute or relative to the working folder, or gs://bucket/path.
          keep: the number of latest checkpoints to keep, besides the best.
          gives_up: returns True if a save that has made no progress for some seconds is to be abandoned.

        Raises:
          CheckpointError: the folder is missing and is not to be created, or cannot be.
        """
        self._folder = checkpoint_folder.open_folder(folder)
        self._background = BackgroundSave(gives_up)
        self._memories = MemoryItems(self._folder)
        self._upkeep = FolderUpkeep(self._folder, keep, self._memories)
        if not create and not self._folder.is_dir():
            raise CheckpointError(f"no checkpoints: there is no folder {self._folder}")
        if create:
            with errors_as(CheckpointError, f"checkpoints cannot go to {self._folder}", OSError):
                self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def last_saved(self) -> int | None:
        """The latest step that this process has saved completely; does not wait."""
        return self._background.last_saved

    def save(self, step: int, state: Any, meta: Mapping[str, Any], score: float | None = None) -> bool:
        """Starts saving and returns once the arrays may be changed, so `state` may be donated at once.

        A failure of an earlier save is logged as a warning.

        Args:
          step: environment steps made.
          state: a dataclass or mapping of trees of arrays, such as `TrainState`.
          meta: JSON-compatible values to restore with it.
          score: the evaluation return, which decides which is best; None without an evaluation.

        Returns:
          True if it is being saved, False if this step was saved before.

        Raises:
          SaveError: it cannot be written; a later save may succeed.
          CheckpointError: the folder holds a later step, so this one would never be found.
        """
        if error := self._background.settle():
            log.warning("%s", error)
        path = self._folder / str(step)
        state, rows = state_arrays.split(state)
        latest, problem = process_group.everywhere(self._upkeep.prepare(path, bool(rows)))[0]
        if problem is not None:
            raise SaveError(path, problem)
        if latest is not None and step < latest:
            raise CheckpointError(f"step {step} was not saved: {self._folder} already holds step {latest}")
        if step == latest:
            return False
        score = score if score is not None and math.isfinite(score) else None
        try:
            memory = self._memories.write(step, rows) if rows else None
        except OSError as error:
            raise SaveError(path, checkpoint_folder.one_line(error)) from error
        arrays = sharding.to_host(state_arrays.to_arrays(state))
        if process_group.is_first():
            # A save by all would make processes wait for each other, even when the disk fails.
            record = Record(step, score, meta, describe(state_arrays.flat(arrays)), memory)
            owned = {field: dict(zip(x, map(_own, x.values()), strict=True)) for field, x in arrays.items()}
            self._background.start(path, owned, record.sealed(), self._upkeep.prune, self._upkeep.clear)
        return True

    def save_score(self, step: int, score: float, found: Mapping[str, Any]) -> None:
        """Stores the score of a step that was saved without one, and what was `found` out, in its `meta`.

        Raises as `meta`, or OSError.
        """
        if process_group.is_first() and math.isfinite(score):
            if (record := self._record(step)).score != score:
                record = dataclasses.replace(record, score=score, meta={**record.meta, **found})
                checkpoint_folder.replace_record(self._folder / str(step), record)
            self._upkeep.note_score(step, score)

    def all_steps(self) -> tuple[int, ...]:
        """Steps of complete checkpoints, ascending; waits for one that is being written."""
        self._background.join()
        try:
            return tuple(self._upkeep.find().steps)
        except OSError as error:
            raise CheckpointError(
                f"{self._folder} cannot be listed: {checkpoint_folder.one_line(error)}"
            ) from error

    def latest_step(self) -> int | None:
        """The latest step, None without checkpoints."""
        return max(self.all_steps(), default=None)

    def intact_steps(self) -> tuple[int, ...]:
        """The steps of intact checkpoints; reads all of them."""
        return tuple(s for s in self.all_steps() if checkpoint_folder.damage(self._folder / str(s)) is None)

    def best_step(self) -> int | None:
        """The step with the highest score, the latest of equals; None without a score."""
        return self._upkeep.best(self.all_steps())

    def meta(self, step: int) -> dict[str, Any]:
        """The `meta` that was saved with `step`.

        Raises:
          CheckpointError: there is no such step, or it is corrupt.
        """
        return dict(self._record(step).meta)

    def restore(self, step: int, abstract_state: Any) -> tuple[Any, dict[str, Any]]:
        """Restores everything onto the devices of `abstract_state`.

        Args:
          step: one of `all_steps()`.
          abstract_state: the state with `jax.ShapeDtypeStruct` for arrays, typed keys included; without a
            sharding, an array goes to the default device. A `memory` of None is not restored.

        Returns:
          (state, meta). The state's `memory` is None, with a warning, if its rows are there no more.

        Raises:
          CorruptCheckpoint: its files differ from the saved ones.
          CheckpointError: there is no such step, or its arrays differ in name, shape or dtype.
        """
        record = self._record(step)
        state = state_arrays.restore_state(self._folder, record, abstract_state)
        return state_arrays.with_memory(self._memories, state, record, abstract_state), dict(record.meta)

    def restore_partial(self, step: int, names: Sequence[str], abstract: Any) -> dict[str, Any]:
        """Restores only the fields `names`, for example ("learner/policy",); the rest is not read.

        Args:
          step: one of `all_steps()`.
          names: fields of the saved state.
          abstract: as for `restore`; other fields may be missing.

        Raises:
          CheckpointError: as for `restore`.
        """
        available = state_arrays.fields(abstract)
        wanted = {name: available[name] for name in names}
        return state_arrays.restore_fields(self._folder, self._record(step), wanted, names)

    def restore_latest(
        self, abstract_state: Any, check: Callable[[Mapping[str, Any]], None] = lambda meta: None
    ) -> tuple[int, Any, dict[str, Any]] | None:
        """Restores the latest intact checkpoint and moves the unusable ones after it to `corrupt/`.

        Args:
          abstract_state: as for `restore`.
          check: raises ValueError for the `meta` of an unusable checkpoint.

        Returns:
          (step, state, meta); None if the run has never completed a checkpoint.

        Raises:
          CheckpointError: there are checkpoints but none is intact, or the latest intact one does not fit.
        """
        # All use what the first process sees; `everywhere` also makes them wait for each other.
        steps = process_group.everywhere(self.all_steps())[0]
        for step in reversed(steps):
            restored, problem = None, None  # the memory comes once all processes have the rest
            try:
                self._check(step, check)
                record = self._record(step)
                restored = state_arrays.restore_state(self._folder, record, abstract_state)
            except CorruptCheckpoint as error:
                problem = str(error)
            problem = next((p for p in process_group.everywhere(problem) if p), None)
            if problem is None and restored is not None:
                if step != steps[-1]:
                    log.warning("continuing from step %d, the latest intact checkpoint", step)
                state = state_arrays.with_memory(self._memories, restored, record, abstract_state)
                return step, state, dict(record.meta)
            self._upkeep.set_aside(step, str(problem))
        if process_group.everywhere(bool(steps) or self._upkeep.has_started())[0]:
            raise CheckpointError(
                f"{self._folder} has held checkpoints, but none that is intact is left (damaged ones are in "
                f"{self._upkeep.corrupt}): delete {self._folder.parent} to start over, or choose another "
                "--workdir, there with --config.init_from to begin from another run"
            )
        return None

    def rewind(self, step: int) -> None:
        """Deletes the checkpoints after `step`; if none is left, the run counts as never saved.

        Raises:
          OSError: one cannot be deleted.
        """
        self._upkeep.rewind(step)

    def wait(self) -> None:
        """Blocks until everything is written.

        Raises:
          SaveError: the last save failed, in any process; raised once.
        """
        # The error of any process is raised in all, so that all continue alike.
        error = self._background.settle()
        own = error and [error.reason, error.stalled]
        if problems := [p for p in process_group.everywhere(own) if p]:
            raise error or SaveError(self._folder, *problems[0])

    def close(self) -> None:
        """Finishes writing and releases the threads; raises as `wait` does."""
        self._background.close()
        self.wait()

    def _record(self, step: int) -> Record:
        steps = self.all_steps()
        if step not in steps:
            known = ", ".join(str(s) for s in steps) or "none"
            raise CheckpointError(f"no checkpoint of step {step} in {self._folder}; available steps: {known}")
        return checkpoint_folder.read_record(self._folder / str(step))

    def _check(self, step: int, check: Callable[[Mapping[str, Any]], None]) -> None:
        meta = self.meta(step)
        try:
            check(meta)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            reason = checkpoint_folder.one_line(error)
            raise CorruptCheckpoint(
                f"the checkpoint {self._folder / str(step)} cannot be used: {reason}"
            ) from error


def _own(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if it is a view of the buffer of a device, which may be donated."""
    return array if array.flags.owndata else array.copy()
