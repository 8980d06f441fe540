"""Checkpoints written in the background through Orbax, one at a time."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config.errors import RunError
from jaxrl.parallel.process_exit import abandon
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder
from jaxrl.runs.checkpoint.array_files import plain_path
from jaxrl.runs.checkpoint.checkpoint_folder import META, STATE, CheckpointError, one_line

_POLL_SECONDS = 0.5

log = logging.getLogger(__name__)


class SaveError(RunError):
    """A checkpoint could not be written. Older ones are untouched, and a later save may succeed.

    Attributes:
      reason: in words.
      stalled: True if it was given up without progress, so that another try would only cost time.
    """

    def __init__(self, path: epath.Path, reason: str, stalled: bool = False) -> None:
        super().__init__(f"the checkpoint {path} could not be written: {reason}")
        self.reason = reason
        self.stalled = stalled


class BackgroundSave:
    """Runs at most one save at a time; `last_saved` is the latest step that is complete, None before."""

    def __init__(self, gives_up: Callable[[float], bool]) -> None:
        """Takes a function that returns True if a save without progress for some seconds is abandoned."""
        self.last_saved: int | None = None
        self._gives_up = gives_up
        self._orbax: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[epath.Path, Future[None]] | None = None

    def start(
        self,
        path: epath.Path,
        arrays: Mapping[str, Mapping[str, np.ndarray]],
        record: Mapping[str, Any],
        saved: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        """Starts a save and returns at once. After an earlier save, call `settle` first.

        Args:
          path: the folder to become the checkpoint, `.../STEP`.
          arrays: by field and path; they must not change.
          saved, failed: called in the background when the checkpoint is complete, or has failed.
        """

        def run() -> None:
            try:
                with plain_path(path.parent) as folder:
                    self._write(folder / path.name, arrays, record)
                try:
                    checkpoint_folder.read_back(path, record)
                except CheckpointError as error:
                    with contextlib.suppress(OSError):
                        checkpoint_files.remove(path)
                    raise ValueError(f"it cannot be read back: {error}") from error
            except Exception:
                failed()
                raise
            self.last_saved = int(path.name)
            saved()

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending = path, self._thread.submit(run)

    def join(self) -> None:
        """Waits for the save; `settle` reports a failure."""
        if self._pending is not None:
            self._wait_for(*self._pending)

    def settle(self) -> SaveError | None:
        """Waits; returns the failure of the last save, once, and readies Orbax for the next."""
        if self._pending is None:
            return None
        (path, future) = self._pending
        self._pending = None
        if not self._wait_for(path, future):
            # The next save must not wait for the same.
            abandon(future.done)
            self._orbax = self._thread = None
            return SaveError(path, "it makes no progress: the disk does not answer", stalled=True)
        if (error := future.exception()) is None:
            return None
        self._drop_orbax()
        return SaveError(path, one_line(error))

    def close(self) -> None:
        """Waits and releases the threads."""
        self.join()
        if self._pending is None or self._pending[1].done():
            self._drop_orbax()
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None

    def _wait_for(self, path: epath.Path, future: Future[None]) -> bool:
        """Waits for the end of a save; returns False if it is given up before."""
        since = time.monotonic()
        state = None
        while not wait([future], timeout=_POLL_SECONDS).done:
            if storage.is_remote(path):
                continue  # The client has time limits of its own.
            progress = _progress(path)
            if progress != state:
                since = time.monotonic()
                state = progress
            elif self._gives_up(time.monotonic() - since):
                return False
        return True

    def _write(
        self, path: epath.Path, arrays: Mapping[str, Mapping[str, np.ndarray]], record: Mapping[str, Any]
    ) -> None:
        ocp = _import_orbax()
        if self._orbax is None:
            # Otherwise threads would wait for minutes for a folder that cannot be created.
            options = ocp.options.AsyncOptions(create_directories_asynchronously=False)
            # All arrays are here, so no process needs to wait for another while it writes.
            alone = ocp.options.MultiprocessingOptions(
                primary_host=0, active_processes={0}, barrier_sync_key_prefix="alone"
            )
            handler = ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(multiprocessing_options=alone, async_options=options),
                **{
                    STATE: ocp.PyTreeCheckpointHandler(multiprocessing_options=alone),
                    META: ocp.JsonCheckpointHandler(multiprocessing_options=alone),
                },
            )
            self._orbax = ocp.AsyncCheckpointer(handler, async_options=options, multiprocessing_options=alone)
        items = {STATE: ocp.args.PyTreeSave(arrays), META: ocp.args.JsonSave(record)}
        self._orbax.save(path, args=ocp.args.Composite(**items))
        self._orbax.wait_until_finished()

    def _drop_orbax(self) -> None:
        """Drops the Orbax object, which would raise the error of a failed save again at the next one."""
        orbax = self._orbax
        self._orbax = None
        if orbax is not None:
            # The first call may raise the error to be dropped before it ends the threads.
            for _ in range(2):
                with contextlib.suppress(Exception):
                    orbax.close()


def _progress(path: epath.Path) -> tuple[int, int]:
    """Values that change while `path` is being saved: bytes on the disk, and CPU seconds in pairs."""
    written = 0
    # A file may go while it is looked at; the listing must be closed then too.
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(path.name):
                written += checkpoint_files.size(epath.Path(entry.path))
    return written, int(time.process_time()) // 2  # A display alone takes a second in 20.


@functools.cache
def _import_orbax() -> Any:
    """Imports `orbax.checkpoint` without its log: its failures are raised, and reported once."""
    # Imported when needed: it takes as long as jax itself, and `--help` must not wait for it.
    import orbax.checkpoint

    logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)
    logging.getLogger("asyncio").addFilter(_is_no_late_failure)
    sys.unraisablehook = functools.partial(_without_late_failures, sys.unraisablehook)
    return orbax.checkpoint


def _is_no_late_failure(record: logging.LogRecord) -> bool:
    """Hides later failures: Orbax stops at the first failed write, and asyncio reports the others."""
    if "never retrieved" not in str(record.msg):
        return True
    origin = traceback.format_exception(*record.exc_info) if record.exc_info else []
    return "orbax" not in record.getMessage() + "".join(origin)


def _without_late_failures(report: Callable[[Any], None], unraisable: Any) -> None:
    """Hides later failures: Orbax closes its event loop at the first, and each other prints a traceback."""
    if unraisable.object is not None or str(unraisable.exc_value) != "Event loop is closed":
        report(unraisable)
