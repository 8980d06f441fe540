"""A copy of a run's folder in a bucket, kept up to date while the run trains."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from jaxrl.config.errors import ConfigError, RunError
from jaxrl.reporting.writers.writer import Writer
from jaxrl.runs.storage.bucket import is_failure, reason
from jaxrl.runs.storage.copy import sync

# Seconds that the end of a run waits for the last copy; fewer after a signal, as the machine may stop soon.
CLOSE_SECONDS = 120.0
CLOSE_SECONDS_AFTER_SIGNAL = 5.0

log = logging.getLogger(__name__)


class Mirror(Writer):
    """Copies changed files, in a thread, at intervals of steps and at the end.

    Training never waits for it, nor stops because of it: the first failure is logged as a warning, and the
    next copy makes up for it. Every object is marked with the run and the step at which it was copied.
    """

    def __init__(self, source: str, target: str, run: str, every_steps: int) -> None:
        """Prepares the copy to s3://bucket/prefix or gs://...; the thread starts with the first one."""
        self._source = source
        self._target = target
        self._run = run
        self._every = every_steps
        self._step = 0
        self._due = every_steps
        self._wake = threading.Event()
        self._closing = False
        self._close_seconds = CLOSE_SECONDS
        self._thread: threading.Thread | None = None
        self._failed = False

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._step = step
        if step >= self._due:
            self._due = (step // self._every + 1) * self._every
            self._start()

    def resume_from(self, step: int) -> None:
        self._step = step
        self._due = (step // self._every + 1) * self._every

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._step = int(summary.get("steps", self._step))
        if str(summary.get("stop_reason", "")).startswith("SIG"):
            self._close_seconds = CLOSE_SECONDS_AFTER_SIGNAL

    def close(self) -> None:
        self._closing = True
        self._start()
        thread = self._thread
        assert thread is not None
        thread.join(min(2.0, self._close_seconds))
        if thread.is_alive():
            log.warning("copying to %s, for at most %.0f s", self._target, self._close_seconds)
            thread.join(self._close_seconds)
        if thread.is_alive() or self._failed:
            message = "the copy in %s is not complete; `jaxrl sync %s %s` completes it"
            log.warning(message, self._target, self._source, self._target)

    def _start(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_copying, name="mirror", daemon=True)
            self._thread.start()

    def _keep_copying(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._closing
            self._copy()
            if last:
                return

    def _copy(self) -> None:
        marks = {"run": self._run, "step": str(self._step)}
        try:
            report = sync(self._source, self._target, tell=log.debug, metadata=marks)
        except Exception as error:  # clients raise all kinds
            known = isinstance(error, (ConfigError, RunError))
            why = " ".join(str(error).split()) if known and not is_failure(error) else reason(error)
            if not self._failed:
                log.warning("no copy in %s, training continues: %s", self._target, why)
            self._failed = True
            return
        if self._failed:
            log.info("copies reach %s again", self._target)
        self._failed = False
        log.info("step %s: %d files copied to %s", marks["step"], len(report.copied), self._target)
