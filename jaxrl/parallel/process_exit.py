"""The end of a process at once, without what Python or its threads would wait for."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

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
