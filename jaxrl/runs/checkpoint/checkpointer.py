"""Checkpoints of the whole training state, through Orbax; local folders and gs://.

Arrays are stored under their paths, not as Python objects, so that a checkpoint does not depend on the
classes of an environment or of the optimiser. `checkpoint_folder.py` reads and verifies checkpoints: every
restored array is, bit for bit, the one that was saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from jaxrl.parallel import process_group, sharding
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder, restoration, state_arrays
from jaxrl.runs.checkpoint import record as checkpoint_record
from jaxrl.runs.checkpoint.background_save import BackgroundSave, SaveError
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.memory_item import MemoryItems
from jaxrl.runs.checkpoint.record import Record

__all__ = ["CheckpointError", "Checkpointer", "CorruptCheckpoint", "SaveError"]

log = logging.getLogger(__name__)

# Exists once the folder has held a complete checkpoint: without any left, a run must then not start afresh.
_STARTED = ".started"
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
          create: create a missing folder.
          gives_up: returns True if a save that has made no progress for some seconds is to be abandoned.

        Raises:
          CheckpointError: the folder is missing and is not to be created, or cannot be.
        """
        self._folder = checkpoint_folder.open_folder(folder)
        self._keep = keep
        self._scores: dict[int, float | None] = {}
        self._ignored: set[str] = set()  # names with a warning in the log
        self._background = BackgroundSave(gives_up)
        self._memories = MemoryItems(self._folder)
        if not create and not self._folder.is_dir():
            raise CheckpointError(f"no checkpoints: there is no folder {self._folder}")
        if create:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"checkpoints cannot go to {self._folder}: {error}") from error

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
        latest, problem = process_group.everywhere(self._prepare_place(path, bool(rows)))[0]
        if problem is not None:
            raise SaveError(path, problem)
        if latest is not None and step < latest:
            raise CheckpointError(f"step {step} was not saved: {self._folder} already holds step {latest}")
        if step == latest:
            return False
        score = score if score is not None and math.isfinite(score) else None
        memory = self._write_memory(path, rows)
        arrays = sharding.to_host(state_arrays.to_arrays(state))
        if process_group.is_first():
            # A save by all would make processes wait for each other, even when the disk fails.
            record = checkpoint_record.seal(step, score, meta, state_arrays.flat(arrays), memory)
            owned = {field: dict(zip(x, map(_own, x.values()), strict=True)) for field, x in arrays.items()}
            self._background.start(path, owned, record, self._prune, self._clear)
        return True

    def save_score(self, step: int, score: float, found: Mapping[str, Any]) -> None:
        """Stores the score of a step that was saved without one, and what was `found` out, in its `meta`.

        Raises as `meta`, or OSError.
        """
        if process_group.is_first() and math.isfinite(score):
            if (record := self._record(step)).score != score:
                record = dataclasses.replace(record, score=score, meta={**record.meta, **found})
                checkpoint_folder.replace_record(self._folder / str(step), record)
            self._scores[step] = score

    def all_steps(self) -> tuple[int, ...]:
        """Steps of complete checkpoints, ascending; waits for one that is being written."""
        self._background.join()
        try:
            return tuple(self._find().steps)
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
        return _best(self._known_scores(self.all_steps()))

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
          (state, meta). The state's `memory` is None, and a warning says why, if its rows are there no more.

        Raises:
          CorruptCheckpoint: its files are not what was saved.
          CheckpointError: there is no such step, or its arrays differ in name, shape or dtype.
        """
        record = self._record(step)
        state = restoration.restore_state(self._folder, record, abstract_state)
        return restoration.with_memory(self._memories, state, record, abstract_state), dict(record.meta)

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
        return restoration.restore_fields(self._folder, self._record(step), wanted, names)

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
                restored = restoration.restore_state(self._folder, record, abstract_state)
            except CorruptCheckpoint as error:
                problem = str(error)
            problem = next((p for p in process_group.everywhere(problem) if p), None)
            if problem is None and restored is not None:
                if step != steps[-1]:
                    log.warning("continuing from step %d, the latest intact checkpoint", step)
                state = restoration.with_memory(self._memories, restored, record, abstract_state)
                return step, state, dict(record.meta)
            self._set_aside(step, str(problem))
        if process_group.everywhere(bool(steps) or self._has_started())[0]:
            raise CheckpointError(
                f"{self._folder} has held checkpoints, but none that is intact is left (damaged ones are in "
                f"{self._corrupt}): delete {self._folder.parent} to start over, or choose another --workdir, "
                "there with --config.init_from to begin from another run"
            )
        return None

    def rewind(self, step: int) -> None:
        """Deletes the checkpoints after `step`; if none is left, the run counts as never saved.

        Raises:
          OSError: one cannot be deleted.
        """
        found = self._find().steps
        for later in (each for each in found if each > step):
            checkpoint_files.remove(found[later])
            self._scores.pop(later, None)
        self._memories.rewind(step)
        if min(found, default=step + 1) > step:
            (self._folder / _STARTED).unlink(missing_ok=True)

    def wait(self) -> None:
        """Blocks until everything is written.

        Raises:
          SaveError: the last save failed, in any process; raised once.
        """
        self._raise_everywhere(self._folder, self._background.settle())

    def close(self) -> None:
        """Finishes writing and releases the threads; raises as `wait` does."""
        self._background.close()
        self.wait()

    def _raise_everywhere(self, path: epath.Path, error: SaveError | None) -> None:
        """Raises the error of any process in all, so that all continue alike."""
        own = error and [error.reason, error.stalled]
        problems = [p for p in process_group.everywhere(own) if p]
        if problems:
            raise error or SaveError(path, *problems[0])

    @property
    def _corrupt(self) -> epath.Path:
        return self._folder.parent / "corrupt"

    def _write_memory(self, path: epath.Path, rows: Mapping[str, Any]) -> dict[str, Any] | None:
        """Writes the rows of a large memory, before the checkpoint `path`; returns their description."""
        if not rows:
            return None
        try:
            return self._memories.write(int(path.name), rows)
        except OSError as error:
            raise SaveError(path, checkpoint_folder.one_line(error)) from error

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

    def _find(self) -> checkpoint_folder.Contents:
        contents = checkpoint_folder.find(self._folder)
        for path, kind in contents.ignored.items():
            if path.name not in self._ignored:
                self._ignored.add(path.name)
                log.warning("%s is %s, no checkpoint: ignored", path, kind)
        return contents

    def _has_started(self) -> bool:
        return (self._folder / _STARTED).exists() or self._corrupt.exists()

    def _set_aside(self, step: int, problem: str) -> None:
        target = None
        if process_group.is_first():
            try:
                target = str(checkpoint_files.set_aside(self._folder / str(step), self._corrupt))
            except OSError as error:
                raise CheckpointError(f"{problem}; and it cannot be set aside: {error}") from error
        target = process_group.everywhere(target)[0]
        self._scores.pop(step, None)
        log.warning("%s; it is now %s", problem, target)

    def _prepare_place(self, path: epath.Path, has_memory: bool) -> tuple[int | None, str | None]:
        """Frees space and name for a new checkpoint; returns (the latest step, the reason against a save).

        Only the first process does it; the others return (None, None).
        """
        if not process_group.is_first():
            return None, None
        try:
            contents = self._find()
            latest = max(contents.steps, default=None)
            if latest is None or int(path.name) > latest:
                self._clear()
                if has_memory:
                    self._tidy(lambda: self._memories.clear(contents.steps))
                if path in contents.ignored:
                    log.warning(
                        "%s was in the way: it is now %s",
                        path,
                        checkpoint_files.set_aside(path, self._corrupt),
                    )
                checkpoint_files.require_space(path)
        except Exception as error:  # gs:// raises errors of its client
            return None, checkpoint_folder.one_line(error)
        return latest, None

    def _clear(self) -> None:
        """Deletes remains of interrupted saves, so that a full disk has space for the next one."""

        def remove() -> None:
            for path in self._find().unfinished:
                # Other processes may still be writing theirs: the next save clears again.
                with contextlib.suppress(OSError):
                    checkpoint_files.remove(path)

        self._tidy(remove)

    def _prune(self) -> None:
        """Deletes the checkpoints that the newest one makes superfluous."""

        def remove() -> None:
            (self._folder / _STARTED).touch()
            found = self._find().steps
            scores = self._known_scores(found)  # those with a damaged record stay
            for step in scores.keys() - {*sorted(scores)[-self._keep :], _best(scores)}:
                checkpoint_files.remove(found[step])
                self._scores.pop(step, None)
            if self._memories.is_used:
                self._memories.keep_newest(max(found))

        self._tidy(remove)

    def _tidy(self, work: Callable[[], None]) -> None:
        """Does work on which no checkpoint depends; a failure is only a warning."""
        if process_group.is_first():
            try:
                work()
            except Exception as error:  # gs:// raises errors of its client
                log.warning("%s could not be tidied up: %s", self._folder, checkpoint_folder.one_line(error))

    def _known_scores(self, steps: Iterable[int]) -> dict[int, float | None]:
        """Scores of the steps whose record is intact."""
        for step in steps:
            if step not in self._scores:
                with contextlib.suppress(CorruptCheckpoint):
                    self._scores[step] = checkpoint_folder.read_record(self._folder / str(step)).score
        return {step: self._scores[step] for step in steps if step in self._scores}


def _own(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if it is a view of the buffer of a device, which may be donated."""
    return array if array.flags.owndata else array.copy()


def _best(scores: Mapping[int, float | None]) -> int | None:
    scored = [(score, step) for step, score in scores.items() if score is not None]
    return max(scored)[1] if scored else None
