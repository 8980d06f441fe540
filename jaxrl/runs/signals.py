"""Signals: SIGTERM, SIGINT and SIGHUP let training finish its iteration and save, and end the rest at once.

SIGUSR1 asks a training run for a device trace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from jaxrl.parallel.process_exit import leave

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# After a signal: seconds for everything, as its sender may soon send SIGKILL, and seconds without progress.
_GRACE_SECONDS = 6.0
_IDLE_SECONDS_AFTER_SIGNAL = 3.0
_IDLE_SECONDS = 30.0  # without a signal


class Interruption:
    """The signals received so far.

    The first signal ends the process, except inside `defer()`: there it only sets `signum`, on which
    the program acts. A second one always ends the process.
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

    def take_trace_request(self) -> bool:
        """Returns True if a trace was requested since the last call."""
        wanted = self._trace_wanted
        self._trace_wanted = False
        return wanted

    @contextlib.contextmanager
    def defer(self) -> Iterator[None]:
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
        """True while a thread is inside `defer()`."""
        return self._deferring > 0

    def adopt(self, signum: int) -> None:
        """Adopts the signal that all processes of the run agreed on, so that their exit codes are equal."""
        if self.signum is None:
            self._at = time.monotonic()
        self.signum = signum

    def cannot_wait(self, idle: float) -> bool:
        """True if work that has made no progress for `idle` seconds, such as a save, is to be given up."""
        hurries = self.signum is not None and time.monotonic() - self._at > _GRACE_SECONDS
        return idle > (_IDLE_SECONDS_AFTER_SIGNAL if hurries else _IDLE_SECONDS)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum = signum
            self.was_deferred = self.is_deferred
            self._at = time.monotonic()

    def _note_trace(self, signum: int, frame: FrameType | None) -> None:
        self._trace_wanted = True


@contextlib.contextmanager
def catch_signals() -> Iterator[Interruption]:
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


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], object], *signals: int) -> Iterator[None]:
    """Inside the block the handler gets these signals; afterwards those do that had them before."""
    previous = {signum: signal.signal(signum, handler) for signum in signals}
    try:
        yield
    finally:
        for signum, before in previous.items():
            signal.signal(signum, before)


def _watch(reading: int, interruption: Interruption) -> None:
    received = 0
    while number := os.read(reading, 1):
        if number[0] in SIGNALS:
            received += 1
            # The main thread may sleep on: the kernel wakes whichever thread it likes for a signal.
            interruption._note(number[0], None)
        waits = interruption.is_deferred or interruption.was_deferred
        if received > 1 or (received and not waits):
            leave(128 + number[0])
