"""Signals: SIGTERM, SIGINT and SIGHUP let training finish its iteration and save, and end the rest at once.

SIGUSR1 asks a training run for a device trace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from jaxrl.metrics.display import terminal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# After a signal: seconds for everything, as whoever sent it may soon send SIGKILL, and seconds that nothing
# may move then.
_GRACE, _STILL = 6.0, 3.0
_STALLED = 30.0  # without a signal
_LAST_WORDS = 1.0  # seconds to write them


class Interruption:
    """The signals received so far.

    The first signal ends the process, except inside `deferred()`, where it is stored in `signum` for the
    program to act on. A second one always ends the process.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.was_deferred = False  # when the signal came
        self._deferring = 0
        self._counting = threading.Lock()
        self._at = 0.0
        self._trace_wanted = False

    @property
    def name(self) -> str | None:
        """`SIGTERM`, `SIGINT`, `SIGHUP`, or None before any signal."""
        return None if self.signum is None else signal.Signals(self.signum).name

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells report it; 0 before any signal."""
        return 128 + self.signum if self.signum is not None else 0

    def takes_trace(self) -> bool:
        """Whether a trace was requested since the last call."""
        wanted, self._trace_wanted = self._trace_wanted, False
        return wanted

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block the first signal only sets `signum`; several threads may be in one."""
        with self._counting:
            self._deferring += 1
        try:
            yield
        finally:
            with self._counting:
                self._deferring -= 1

    @property
    def is_deferred(self) -> bool:
        """Whether a thread is inside `deferred()`."""
        return self._deferring > 0

    def adopt(self, signum: int) -> None:
        """Takes over the signal that all processes of the run agreed on: they end with the same exit code."""
        if self.signum is None:
            self._at = time.monotonic()
        self.signum = signum

    def cannot_wait(self, idle: float) -> bool:
        """Whether to give up what has not moved for `idle` seconds, such as a save on a disk that is gone."""
        hurries = self.signum is not None and time.monotonic() - self._at > _GRACE
        return idle > (_STILL if hurries else _STALLED)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.signum is None:
            self.signum, self.was_deferred, self._at = signum, self.is_deferred, time.monotonic()

    def _note_trace(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._trace_wanted = True


@contextlib.contextmanager
def caught_signals() -> Iterator[Interruption]:
    """Handles SIGTERM, SIGINT, SIGHUP and SIGUSR1 inside the block; in the main thread only.

    Python runs its handlers between bytecodes, so none runs while XLA compiles or computes. To end the
    process without waiting for XLA, a thread reads the signal numbers that the interpreter's C handler
    writes to a pipe. Signals that the parent process set to be ignored (`nohup`) stay ignored.
    """
    interruption = Interruption()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handled = (*SIGNALS, signal.SIGUSR1)
    previous = {s: signal.getsignal(s) for s in handled if signal.getsignal(s) is not signal.SIG_IGN}
    watcher = threading.Thread(target=_watch, args=(reading, interruption), name="signals", daemon=True)
    watcher.start()
    try:
        for signum in previous:
            note = interruption._note if signum in SIGNALS else interruption._note_trace
            signal.signal(signum, note)
        yield interruption
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(previous_fd)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, interruption: Interruption) -> None:
    received = 0
    while number := os.read(reading, 1):
        received += number[0] in SIGNALS
        waits = interruption.is_deferred or interruption.was_deferred
        if received > 1 or (received and not waits):
            leave(128 + number[0])


_abandoned: list[Callable[[], bool]] = []


def abandon(is_done: Callable[[], bool]) -> None:
    """Notes work that nobody waits for any more, but that the usual way out of the process would wait for."""
    _abandoned.append(is_done)


def must_leave() -> bool:
    """Whether abandoned work goes on, so that only `leave` ends the process now."""
    return not all(is_done() for is_done in _abandoned)


def leave(exit_code: int) -> NoReturn:
    """Ends the process without waiting for its threads, which may be compiling for minutes."""
    # In a thread: a terminal that nobody reads blocks whoever writes to it.
    last_words = threading.Thread(target=_flush, daemon=True)
    last_words.start()
    last_words.join(_LAST_WORDS)
    os._exit(exit_code)


def _flush() -> None:
    terminal.abandon()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # They may be closed, or None.
            stream.flush()
