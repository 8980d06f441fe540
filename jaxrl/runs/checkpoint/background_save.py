"""Checkpoints written in the background through Orbax, one at a time."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from etils import epath

from jaxrl.config.errors import RunError
from jaxrl.runs.checkpoint.folder import META, STATE, one_line

log = logging.getLogger(__name__)


class SaveError(RunError):
    """A checkpoint could not be written. Older ones are untouched, and a later save may succeed."""

    def __init__(self, path: epath.Path, reason: str) -> None:
        super().__init__(f"the checkpoint {path} could not be written: {reason}")
        self.reason = reason


class BackgroundSave:
    """Runs at most one save at a time.

    Attributes:
      last_saved: the latest step that is complete; None before the first.
    """

    def __init__(self) -> None:
        self.last_saved: int | None = None
        self._orbax: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[epath.Path, Future[None]] | None = None

    def start(
        self,
        path: epath.Path,
        arrays: Mapping[str, Mapping[str, Any]],
        record: Mapping[str, Any],
        saved: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        """Starts a save; returns once the arrays may be changed. After an earlier save, call `settle` first.

        Args:
          path: the folder to become the checkpoint, `.../STEP`.
          arrays: by field and path.
          record: JSON.
          saved, failed: called in the background when the checkpoint is complete, or has failed.

        Raises:
          SaveError: it cannot start.
        """
        try:
            ocp = _import_orbax()
            if self._orbax is None:
                handlers = {STATE: ocp.PyTreeCheckpointHandler(), META: ocp.JsonCheckpointHandler()}
                # Otherwise, where the folder cannot be made, threads would wait for it for minutes.
                options = ocp.options.AsyncOptions(create_directories_asynchronously=False)
                handler = ocp.CompositeCheckpointHandler(**handlers)
                self._orbax = ocp.AsyncCheckpointer(handler, async_options=options)
            items = {STATE: ocp.args.PyTreeSave(arrays), META: ocp.args.JsonSave(record)}
            # Orbax copies to host memory before it returns; on CPU it holds references instead, which make
            # XLA copy rather than reuse a donated buffer (see the donation test).
            self._orbax.save(path, args=ocp.args.Composite(**items))
        except Exception as error:  # whatever Orbax, tensorstore and the file system may raise
            self._drop_orbax()
            raise SaveError(path, one_line(error)) from error
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending = path, self._thread.submit(self._finish, int(path.name), saved, failed)

    def join(self) -> None:
        """Waits for the save; `settle` reports a failure."""
        if self._pending is not None:
            wait([self._pending[1]])

    def settle(self) -> SaveError | None:
        """Waits; returns the failure of the last save, once, and readies Orbax for the next."""
        if self._pending is None:
            return None
        (path, future), self._pending = self._pending, None
        if (error := future.exception()) is None:
            return None
        self._drop_orbax()
        return SaveError(path, one_line(error))

    def close(self) -> None:
        """Waits and releases the threads."""
        self.join()
        self._drop_orbax()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _finish(self, step: int, saved: Callable[[], None], failed: Callable[[], None]) -> None:
        try:
            self._orbax.wait_until_finished()
        except Exception:
            failed()
            raise
        self.last_saved = step
        saved()

    def _drop_orbax(self) -> None:
        """Drops the Orbax object, which would raise the error of a failed save again at the next one."""
        orbax, self._orbax = self._orbax, None
        if orbax is not None:
            # The first call may raise the error to be dropped before it ends the threads.
            for _ in range(2):
                with contextlib.suppress(Exception):
                    orbax.close()


def _import_orbax() -> Any:
    """The module `orbax.checkpoint`, silenced: its failures are raised, and reported once."""
    # Imported when needed: it takes as long as jax itself, and `--help` must not wait for it.
    import orbax.checkpoint

    logger = logging.getLogger("absl")
    if not any(isinstance(f, _NoOrbax) for f in logger.filters):
        logger.addFilter(_NoOrbax())
        logging.getLogger("asyncio").addFilter(_NoLateFailures())
        sys.unraisablehook = functools.partial(_without_late_failures, sys.unraisablehook)
    return orbax.checkpoint


class _NoOrbax(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname


class _NoLateFailures(logging.Filter):
    """Hides later failures: Orbax stops at the first failed write, and asyncio reports the others."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "never retrieved" not in str(record.msg):
            return True
        origin = traceback.format_exception(*record.exc_info) if record.exc_info else []
        return "orbax" not in record.getMessage() + "".join(origin)


def _without_late_failures(report: Callable[[Any], None], unraisable: Any) -> None:
    """Hides later failures: Orbax closes its event loop at the first, and each other prints a traceback."""
    if unraisable.object is not None or str(unraisable.exc_value) != "Event loop is closed":
        report(unraisable)
