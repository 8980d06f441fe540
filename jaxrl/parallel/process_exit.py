"""The end of a process: at once, without what Python or its threads would wait for; and by a watchdog."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from jaxrl.parallel.processes import LostProcess

_FLUSH_SECONDS = 1.0

_abandoned: list[Callable[[], bool]] = []
_before_leaving: list[Callable[[], None]] = []


def abandon(is_done: Callable[[], bool]) -> None:
    """Registers work that nobody waits for any more, but for which a normal exit of Python would wait."""
    _abandoned.append(is_done)


def must_leave() -> bool:
    """True if abandoned work still runs, so that only `leave` ends the process now."""
    return not all(is_done() for is_done in _abandoned)


def before_leaving(callback: Callable[[], None]) -> None:
    """Registers, once, a callback for `leave` to call, such as one that restores the terminal."""
    if callback not in _before_leaving:
        _before_leaving.append(callback)


def leave(exit_code: int) -> NoReturn:
    """Ends the process without waiting for its threads, which may be compiling for minutes."""
    # In a thread: a write to a terminal that nobody reads blocks.
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(_FLUSH_SECONDS)
    os._exit(exit_code)


def _flush() -> None:
    for callback in _before_leaving:
        callback()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # They may be closed, or None.
            stream.flush()


@contextlib.contextmanager
def watch_progress(idle_time: Callable[[], tuple[str | None, float]], seconds: float) -> Iterator[None]:
    """Ends the process with a message if `idle_time` reports no progress for `seconds`.

    A thread does it, as the main thread may be blocked on the devices. Compiling does not count, however
    long it takes: no process waits for another meanwhile.

    `idle_time` returns (phase, seconds without progress), as `Clock.idle` does; 0 `seconds`: no watchdog.
    """
    if not seconds:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(idle_time, seconds, over), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(idle_time: Callable[[], tuple[str | None, float]], seconds: float, over: threading.Event) -> None:
    while not over.wait(min(1.0, seconds / 4)):
        phase, idle = idle_time()
        if phase != "compile" and idle > seconds:
            doing = f" in the phase `{phase}`" if phase else ""
            print(
                f"error: no progress{doing} for {idle:.0f} s (--watchdog={seconds:g}): this process, or one "
                "that it waits for, is stuck; the same command resumes from the newest checkpoint",
                file=sys.stderr,
            )
            leave(LostProcess.exit_code)
