"""The terminal under a live display, whose modes are changed while it is open and restored afterwards."""

from __future__ import annotations

import contextlib
import os
import termios
from typing import TextIO

_SHOW_CURSOR = "\x1b[?25h"
# The stream of the display, and the local modes to restore; empty without a display.
_prepared: list[tuple[TextIO, int | None]] = []


def can_redraw(stream: TextIO) -> bool:
    """True if the stream is a terminal on which a display can be redrawn."""
    # `!jaxrl train` in a notebook has a terminal, but its cell cannot redraw a panel.
    in_notebook = "JPY_PARENT_PID" in os.environ
    known_terminal = stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    known_terminal = known_terminal and not in_notebook
    return known_terminal and (stream.encoding or "").lower().replace("-", "") == "utf8"


def prepare(stream: TextIO) -> None:
    """Keeps the terminal from echoing Ctrl-C as ^C, which would push a display out of its place."""
    modes = None
    with contextlib.suppress(OSError, termios.error):
        modes = termios.tcgetattr(stream.fileno())[3]
        _set_modes(stream, modes & ~termios.ECHOCTL)
    _prepared.append((stream, modes))


def restore() -> None:
    """Undoes `prepare` once the display is closed."""
    while _prepared:
        stream, modes = _prepared.pop()
        if modes is not None:
            _set_modes(stream, modes)


def restore_before_exit() -> None:
    """Undoes `prepare` under a display that is still drawn, before the process ends at once."""
    for stream, _ in _prepared:
        with contextlib.suppress(OSError, ValueError):
            stream.write(f"{_SHOW_CURSOR}\n")
            stream.flush()
    restore()


def _set_modes(stream: TextIO, modes: int) -> None:
    with contextlib.suppress(OSError, ValueError, termios.error):
        terminal = stream.fileno()
        now = termios.tcgetattr(terminal)
        now[3] = modes
        if not _in_background(terminal):  # The kernel would stop this process for it.
            termios.tcsetattr(terminal, termios.TCSANOW, now)


def _in_background(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:  # not the terminal that started this
        return False
