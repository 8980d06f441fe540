"""The upkeep of a folder of checkpoints: kept ones, damaged ones, remains of interrupted saves."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from etils import epath

from jaxrl.config.errors import errors_as
from jaxrl.parallel import process_group
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.checkpoint_record import COMPARABLE_AFTER, is_count
from jaxrl.runs.checkpoint.memory_item import MemoryItems

log = logging.getLogger(__name__)

# Exists once the folder has held a complete checkpoint: without any left, a run must then not start afresh.
_STARTED = ".started"


class _Judged(NamedTuple):
    score: float | None
    comparable_after: int  # the step after which others compare with it


class FolderUpkeep:
    """Keeps a folder of checkpoints in order; only the first process changes anything."""

    def __init__(self, folder: epath.Path, keep: int, memories: MemoryItems) -> None:
        """`keep` is the number of latest checkpoints to keep, besides the best."""
        self._folder = folder
        self._keep = keep
        self._memories = memories
        self._scores: dict[int, _Judged] = {}
        self._ignored: set[str] = set()  # names with a warning in the log

    @property
    def corrupt(self) -> epath.Path:
        """The folder of damaged checkpoints."""
        return self._folder.parent / "corrupt"

    def find(self) -> checkpoint_folder.Contents:
        """The content of the folder; anything else than a checkpoint gives a warning, once."""
        contents = checkpoint_folder.find(self._folder)
        for path, kind in contents.ignored.items():
            if path.name not in self._ignored:
                self._ignored.add(path.name)
                log.warning("%s is %s, no checkpoint: ignored", path, kind)
        return contents

    def has_started(self) -> bool:
        """True if the folder has ever held a complete checkpoint."""
        return (self._folder / _STARTED).exists() or self.corrupt.exists()

    def best(self, steps: Iterable[int]) -> int | None:
        """The step with the highest of the scores that compare with the newest, the latest of equals."""
        return _best(self._known_scores(steps))

    def note_score(self, step: int, score: float) -> None:
        """Takes the score of a checkpoint, whose record has it."""
        self._scores[step] = self._known_scores([step])[step]._replace(score=score)

    def rewind(self, step: int) -> None:
        """Deletes the checkpoints after `step`; if none is left, the run counts as never saved.

        Raises:
          OSError: one cannot be deleted.
        """
        found = self.find().steps
        for later in (each for each in found if each > step):
            checkpoint_files.remove(found[later])
            self._scores.pop(later, None)
        self._memories.rewind(step)
        if min(found, default=step + 1) > step:
            (self._folder / _STARTED).unlink(missing_ok=True)

    def set_aside(self, step: int, problem: str) -> None:
        """Moves a checkpoint that cannot be used out of the way; all processes call it."""
        target = None
        if process_group.is_first():
            with errors_as(CheckpointError, f"{problem}; and it cannot be set aside", OSError):
                target = str(checkpoint_files.set_aside(self._folder / str(step), self.corrupt))
        target = process_group.everywhere(target)[0]
        self._scores.pop(step, None)
        log.warning("%s; it is now %s", problem, target)

    def prepare(self, path: epath.Path, has_memory: bool) -> tuple[int | None, str | None]:
        """Frees space and name for a new checkpoint; returns (the latest step, the reason against a save).

        Only the first process does it; the others return (None, None).
        """
        if not process_group.is_first():
            return None, None
        try:
            contents = self.find()
            latest = max(contents.steps, default=None)
            if latest is None or int(path.name) > latest:
                self.clear()
                if has_memory:
                    self._tidy(lambda: self._memories.clear(contents.steps))
                if path in contents.ignored:
                    aside = checkpoint_files.set_aside(path, self.corrupt)
                    log.warning("%s was in the way: it is now %s", path, aside)
                checkpoint_files.require_space(path)
        except Exception as error:  # gs:// raises errors of its client
            return None, checkpoint_folder.one_line(error)
        return latest, None

    def clear(self) -> None:
        """Deletes remains of interrupted saves, so that a full disk has space for the next one."""

        def remove() -> None:
            for path in self.find().unfinished:
                # Other processes may still be writing theirs: the next save clears again.
                with contextlib.suppress(OSError):
                    checkpoint_files.remove(path)

        self._tidy(remove)

    def prune(self) -> None:
        """Deletes the checkpoints that the newest one makes superfluous."""

        def remove() -> None:
            (self._folder / _STARTED).touch()
            found = self.find().steps
            scores = self._known_scores(found)  # checkpoints with a damaged record stay
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

    def _known_scores(self, steps: Iterable[int]) -> dict[int, _Judged]:
        """Scores of the steps whose record is intact."""
        for step in steps:
            if step not in self._scores:
                with contextlib.suppress(CorruptCheckpoint):
                    record = checkpoint_folder.read_record(self._folder / str(step))
                    after = record.meta.get(COMPARABLE_AFTER)
                    self._scores[step] = _Judged(record.score, after if is_count(after) else 0)
        return {step: self._scores[step] for step in steps if step in self._scores}


def _best(found: Mapping[int, _Judged]) -> int | None:
    after = found[max(found)].comparable_after if found else 0
    scored = [(each.score, step) for step, each in found.items() if each.score is not None and step > after]
    return max(scored)[1] if scored else None
