"""Checkpoints of the whole training state, through Orbax; local folders and gs://.

Arrays are stored under their paths, not as Python objects, so that a checkpoint does not depend on the
classes of an environment or of the optimiser. `folder.py` reads and verifies checkpoints: nothing is
restored that is not, bit for bit, what was saved.
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
from jaxrl.runs.checkpoint import files as checkpoint_files
from jaxrl.runs.checkpoint import folder as checkpoint_folder
from jaxrl.runs.checkpoint import record as checkpoint_record
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.runs.checkpoint.background_save import BackgroundSave, SaveError
from jaxrl.runs.checkpoint.folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.record import Record
from jaxrl.types import PyTree

__all__ = ["CheckpointError", "Checkpointer", "CorruptCheckpoint", "SaveError"]

log = logging.getLogger(__name__)

# In the folder once a checkpoint was complete there; "none left" is then an error, not a fresh run.
_STARTED = ".started"
# Seconds without any progress after which a save is given up.
_STALLED = 30.0


class Checkpointer:
    """Saves and restores checkpoints of one run; keeps the last few and the one with the best score."""

    def __init__(
        self,
        folder: str,
        keep: int = 1,
        create: bool = True,
        gives_up: Callable[[float], bool] = lambda idle: idle > _STALLED,
    ) -> None:
        """Opens `folder`, whatever it holds.

        Args:
          folder: a local path, absolute or relative to the working folder, or gs://bucket/path.
          keep: how many of the latest checkpoints to keep, besides the best.
          create: whether to make a missing folder.
          gives_up: whether to abandon a save that has made no progress for so many seconds.

        Raises:
          CheckpointError: the folder is missing and may not or cannot be made.
        """
        self._folder = checkpoint_folder.open_folder(folder)
        self._keep = keep
        self._scores: dict[int, float | None] = {}
        self._ignored: set[str] = set()  # what has been warned about
        self._background = BackgroundSave(gives_up)
        if not create and not self._folder.is_dir():
            raise CheckpointError(f"no checkpoints: there is no folder {self._folder}")
        if create:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"checkpoints cannot go to {self._folder}: {error}") from error

    @property
    def last_saved(self) -> int | None:
        """The latest step that this process saved and that is complete by now; does not wait."""
        return self._background.last_saved

    def save(self, step: int, state: PyTree, meta: Mapping[str, Any], score: float | None = None) -> bool:
        """Starts saving and returns once the arrays may be changed, so `state` may be donated at once.

        A failure of an earlier save is logged as a warning.

        Args:
          step: environment steps made.
          state: a dataclass or mapping of trees of arrays, such as `TrainState`.
          meta: JSON-compatible values to restore with it.
          score: the greedy evaluation return, which decides what is best; None where not evaluated.

        Returns:
          Whether anything was saved: False if this step already is.

        Raises:
          SaveError: it cannot be written; a later save may succeed.
          CheckpointError: the folder holds a later step, so this one would never be found.
        """
        if error := self._background.settle():
            log.warning("%s", error)
        path = self._folder / str(step)
        latest, problem = process_group.everywhere(self._make_way(path))[0]
        if problem is not None:
            raise SaveError(path, problem)
        if latest is not None and step < latest:
            raise CheckpointError(f"step {step} was not saved: {self._folder} already holds step {latest}")
        if step == latest:
            return False
        score = score if score is not None and math.isfinite(score) else None
        arrays = sharding.to_host(state_arrays.stored(state))
        if process_group.is_first():
            # Others would have to wait for it, and it for them, whatever becomes of the disk.
            record = checkpoint_record.sealed(step, score, meta, state_arrays.flat(arrays))
            owned = {field: dict(zip(x, map(_owned, x.values()), strict=True)) for field, x in arrays.items()}
            self._background.start(path, owned, record, self._saved, self._clear)
        return True

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
        """The step with the highest score, of equals the latest; None where none has a score."""
        return _best(self._known_scores(self.all_steps()))

    def meta(self, step: int) -> dict[str, Any]:
        """The `meta` that was saved with `step`.

        Raises:
          CheckpointError: there is no such step, or it is corrupt.
        """
        return dict(self._record(step).meta)

    def restore(self, step: int, abstract_state: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """Restores everything onto the devices of `abstract_state`.

        Args:
          step: one of `all_steps()`.
          abstract_state: the state with `jax.ShapeDtypeStruct` for arrays, typed keys included; without a
            sharding, an array goes to the default device.

        Returns:
          (state, meta).

        Raises:
          CorruptCheckpoint: its files are not what was saved.
          CheckpointError: there is no such step, or its arrays differ in name, shape or dtype.
        """
        record = self._record(step)
        fields = state_arrays.fields(abstract_state)
        restored = self._restore(record, fields, record.fields)
        if dataclasses.is_dataclass(abstract_state):
            return dataclasses.replace(abstract_state, **restored), dict(record.meta)  # type: ignore[type-var]
        return restored, dict(record.meta)

    def restore_partial(self, step: int, names: Sequence[str], abstract: PyTree) -> dict[str, PyTree]:
        """Restores only the fields `names`, for example ("learner/policy",); the rest is not read.

        Args:
          step: one of `all_steps()`.
          names: fields of the saved state.
          abstract: as for `restore`; other fields may be missing.

        Raises:
          CheckpointError: as for `restore`.
        """
        available = state_arrays.fields(abstract)
        return self._restore(self._record(step), {name: available[name] for name in names}, names)

    def restore_latest(
        self, abstract_state: PyTree, check: Callable[[Mapping[str, Any]], None] = lambda meta: None
    ) -> tuple[int, PyTree, dict[str, Any]] | None:
        """Restores the latest intact checkpoint and moves the unusable ones after it to `corrupt/`.

        Args:
          abstract_state: as for `restore`.
          check: raises ValueError where the `meta` of a checkpoint makes it unusable.

        Returns:
          (step, state, meta); None where the run has never completed a checkpoint.

        Raises:
          CheckpointError: there were checkpoints but none is intact, or the latest intact one does not fit.
        """
        # All use what the first process sees; `everywhere` also makes them wait for each other.
        steps = process_group.everywhere(self.all_steps())[0]
        for step in reversed(steps):
            restored, problem = None, None
            try:
                self._check(step, check)
                restored = self.restore(step, abstract_state)
            except CorruptCheckpoint as error:
                problem = str(error)
            problem = next((p for p in process_group.everywhere(problem) if p), None)
            if problem is None and restored is not None:
                if step != steps[-1]:
                    log.warning("continuing from step %d, the latest intact checkpoint", step)
                return step, *restored
            self._set_aside(step, str(problem))
        if process_group.everywhere(bool(steps) or self._has_started())[0]:
            raise CheckpointError(
                f"{self._folder} has held checkpoints, but none that is intact is left (damaged ones are in "
                f"{self._corrupt}): delete {self._folder.parent} to start over, or choose another --workdir, "
                "there with --config.init_from to begin from another run"
            )
        return None

    def rewind(self, step: int) -> None:
        """Deletes the checkpoints after `step`; where none is left, it is as if the run had never saved.

        Raises:
          OSError: one cannot be deleted.
        """
        found = self._find().steps
        for later in (each for each in found if each > step):
            checkpoint_files.remove(found[later])
            self._scores.pop(later, None)
        if min(found, default=step + 1) > step:
            (self._folder / _STARTED).unlink(missing_ok=True)

    def wait(self) -> None:
        """Blocks until everything is written.

        Raises:
          SaveError: the last save failed, in any process; raised once.
        """
        self._raise_everywhere(self._folder, self._background.settle())

    def close(self) -> None:
        """Finishes writing and releases the threads.

        Raises:
          SaveError: as for `wait`.
        """
        self._background.close()
        self.wait()

    def _raise_everywhere(self, path: epath.Path, error: SaveError | None) -> None:
        """Raises in every process what failed in any, so that all continue alike."""
        own = error and [error.reason, error.stalled]
        problems = [p for p in process_group.everywhere(own) if p]
        if problems:
            raise error or SaveError(path, *problems[0])

    @property
    def _corrupt(self) -> epath.Path:
        return self._folder.parent / "corrupt"

    def _restore(
        self, record: Record, fields: Mapping[str, PyTree], compare: Sequence[str]
    ) -> dict[str, PyTree]:
        """Restores `fields`, which must hold every stored array of the fields `compare` and nothing else."""
        path = self._folder / str(record.step)
        asked = {
            f"{field}/{name}": array
            for field, tree in fields.items()
            for name, array in state_arrays.asked(tree).items()
        }
        if lacking := {name.partition("/")[0] for name in asked} - set(record.fields):
            raise CheckpointError(
                f"the checkpoint of step {record.step} in {self._folder} was written by another version of "
                f"jaxrl: it has no {', '.join(sorted(lacking))}, it holds {', '.join(record.fields)}"
            )
        # Orbax would cast silently, or fail with pages of trees.
        held = {k: v for k, v in record.arrays.items() if state_arrays.is_part(k, compare)}
        for name in sorted(held.keys() | asked.keys()):
            there = f"{held[name]['dtype']}{held[name]['shape']}" if name in held else "absent"
            here = f"{asked[name].dtype}{list(asked[name].shape)}" if name in asked else "absent"
            if there != here:
                raise CheckpointError(
                    f"the checkpoint of step {record.step} in {self._folder} does not fit: "
                    f"{name} is {there} there and {here} in this configuration"
                )
        arrays = checkpoint_folder.read_arrays(path, record, fields)
        return {name: state_arrays.rebuilt(name, tree, arrays) for name, tree in fields.items()}

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

    def _make_way(self, path: epath.Path) -> tuple[int | None, str | None]:
        """Frees space and name for a new checkpoint; returns the latest step and what prevents a save.

        Only the first process looks.
        """
        if not process_group.is_first():
            return None, None
        try:
            contents = self._find()
            latest = max(contents.steps, default=None)
            if latest is None or int(path.name) > latest:
                self._clear()
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

    def _saved(self) -> None:
        """Deletes the checkpoints that the newest one makes superfluous."""

        def prune() -> None:
            (self._folder / _STARTED).touch()
            found = self._find().steps
            scores = self._known_scores(found)  # those with a damaged record stay
            for step in scores.keys() - {*sorted(scores)[-self._keep :], _best(scores)}:
                checkpoint_files.remove(found[step])
                self._scores.pop(step, None)

        self._tidy(prune)

    def _tidy(self, work: Callable[[], None]) -> None:
        """Does work that no checkpoint depends on; a failure is only a warning."""
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


def _owned(array: np.ndarray) -> np.ndarray:
    """A copy, where the array is a view of the buffer of a device, which may be donated."""
    return array if array.flags.owndata else array.copy()


def _best(scores: Mapping[int, float | None]) -> int | None:
    scored = [(score, step) for step, score in scores.items() if score is not None]
    return max(scored)[1] if scored else None
