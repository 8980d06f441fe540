"""Experiment trackers: clients of a service that may be slow, fail or be out of reach."""

from __future__ import annotations

import abc
import dataclasses
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from etils import epath

from jaxrl.config.data_files import read_object
from jaxrl.config.local_files import is_remote, replace_text, require_no_links
from jaxrl.reporting.writers.writer import Writer

_log = logging.getLogger(__name__)

# Rows are sent together: calls are expensive, rows are not.
SECONDS_BETWEEN_CALLS = 5.0
MAX_SECONDS_BETWEEN_TRIES = 60.0
# Seconds that the end of a run waits for a tracker; fewer after a signal, as the machine may stop soon.
CLOSE_SECONDS = 60.0
CLOSE_SECONDS_AFTER_SIGNAL = 5.0
_MAX_ROWS = 20_000
_ROWS_PER_CALL = 50
_MAX_ERROR = 300


@dataclasses.dataclass(frozen=True)
class Row:
    """Metrics of one step; `time` is seconds since 1970, `samples` are the values of distributions."""

    step: int
    time: float
    scalars: Mapping[str, float]
    samples: Mapping[str, Sequence[float]]


class RunIds:
    """The identifier of a folder's run at a tracker, kept in `trackers/NAME.json` for resumed runs."""

    def __init__(self, folder: str, tracker: str) -> None:
        self._folder = folder
        self._file = epath.Path(folder) / "trackers" / f"{tracker}.json"

    def read(self) -> str | None:
        try:
            return str(read_object(self._file)["id"])
        except (OSError, ValueError, KeyError):
            return None

    def write(self, run_id: str, url: str | None = None) -> None:
        text = json.dumps({"id": run_id, "url": url}) + "\n"
        if is_remote(self._folder):
            self._file.write_text(text)
            return
        require_no_links(self._folder, self._file.parent)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self._file, text)


class Tracker(abc.ABC):
    """A run at a tracker. Methods may raise any exception; one thread calls them, `open` first."""

    name: ClassVar[str]

    def __init__(self, folder: str, project: str, name: str, config: Mapping[str, Any]) -> None:
        """Takes the run's folder, the project, displayed name ("": the folder) and configuration."""
        self._folder = folder
        self._project = project
        self._run_name = run_name(folder, name)
        self._config = config
        self._ids = RunIds(folder, self.name)

    @abc.abstractmethod
    def open(self, resume: bool) -> int:
        """Begins a run, or with `resume` continues the folder's; returns its last step, or -1."""

    @abc.abstractmethod
    def log(self, rows: Sequence[Row]) -> None:
        """Sends rows, whose steps never decrease."""

    @abc.abstractmethod
    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Ends the run, with a summary if training finished."""


class Background(Writer):
    """Sends rows to a tracker in a thread, so that training never waits for it.

    The first failure is logged as a warning; retries follow, ever more rarely. Rows wait meanwhile, and the
    oldest are dropped when there are too many. A resumed run continues the same run at the
    tracker, which is not sent rows of steps that it already has.
    """

    def __init__(self, tracker: Tracker, every: float = SECONDS_BETWEEN_CALLS) -> None:
        """Takes a tracker and the seconds between calls; the thread starts with the first phase or row."""
        self._tracker = tracker
        self._every = every
        self._changed = threading.Condition()
        # None: the rows that follow repeat earlier steps.
        self._inbox: deque[Row | None] = deque(maxlen=_MAX_ROWS)
        self._thread: threading.Thread | None = None
        self._resumes = self._urgent = self._closing = self._warned = False
        self._summary: Mapping[str, Any] | None = None
        self._close_seconds = CLOSE_SECONDS
        # Written by the thread only.
        self._opened = False
        self._sent = self._skipped_until = -1

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._put(Row(step, time.time(), dict(scalars), {}))

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        self._put(Row(step, time.time(), {}, dict(samples)))

    def resume_from(self, step: int) -> None:
        if self._thread is None:
            self._resumes = True
        else:
            self._put(None)

    def status(self, phase: str) -> None:
        # Opening a run takes seconds, hidden behind compiling.
        self._start()

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._summary = dict(summary)
        if str(summary.get("stop_reason", "")).startswith("SIG"):
            self._close_seconds = CLOSE_SECONDS_AFTER_SIGNAL

    def flush(self) -> None:
        with self._changed:
            self._urgent = True
            self._changed.notify()

    def close(self) -> None:
        thread = self._thread
        if thread is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        thread.join(min(2.0, self._close_seconds))
        if thread.is_alive():
            # If it has not even started, waiting is unlikely to help.
            shortest = min(self._close_seconds, CLOSE_SECONDS_AFTER_SIGNAL)
            seconds = self._close_seconds if self._opened else shortest
            _log.warning("waiting for %s, at most %.0f s", self._tracker.name, seconds)
            thread.join(seconds)
        if thread.is_alive():
            _log.warning("%s did not end in time; it lacks the last rows", self._tracker.name)

    def _put(self, row: Row | None) -> None:
        with self._changed:
            self._inbox.append(row)
        self._start()

    def _start(self) -> None:
        if self._thread is None:
            name = f"tracker {self._tracker.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = self._every
        closing = False
        while True:
            delivered = self._attempt(self._hand_over)
            if closing:
                break
            pause = self._every if delivered else min(2 * pause, MAX_SECONDS_BETWEEN_TRIES)
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._urgent, timeout=pause)
                closing = self._closing
                self._urgent = False
        if self._opened:
            self._attempt(lambda: self._tracker.close(self._summary))

    def _hand_over(self) -> None:
        if not self._opened:
            self._sent = self._skipped_until = self._tracker.open(self._resumes)
            self._opened = True
        while self._inbox:
            with self._changed:
                items = list(self._inbox)[:_ROWS_PER_CALL]
            if items[0] is None:
                self._skipped_until = self._sent
                items = items[:1]
            elif None in items:
                items = items[: items.index(None)]
            if rows := [row for row in items if row is not None and row.step > self._skipped_until]:
                self._tracker.log(rows)
                self._sent = max(self._sent, rows[-1].step)
            with self._changed:
                # While the tracker was at work, a full inbox may have dropped some of these.
                for item in items:
                    if self._inbox and self._inbox[0] is item:
                        self._inbox.popleft()

    def _attempt(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except Exception as error:
            if not self._warned:
                self._warned = True
                text = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_ERROR]
                _log.warning("%s fails, training continues: %s", self._tracker.name, text)
            return False
        return True


def keep_off_terminal(logger: str) -> None:
    """Removes a library's log handlers, which would write across the display; its warnings show there."""
    log = logging.getLogger(logger)
    log.handlers.clear()
    log.propagate = True


def run_name(folder: str, given: str) -> str:
    """The displayed name: `given`, or the end of the folder's path."""
    parts = [part for part in str(epath.Path(folder)).split("/") if part not in ("", ".", "runs")]
    return given or "/".join(parts[-2:]) or "run"
