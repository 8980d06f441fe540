"""The terminal under a live display: what the display changes of it, and the way back."""

from __future__ import annotations

import contextlib
import os
import termios
from typing import TextIO

_SHOW_CURSOR = "\x1b[?25h"
# The stream of the display, and the local modes to go back to; empty without a display.
_taken: list[tuple[TextIO, int | None]] = []


def take(stream: TextIO) -> None:
    """Keeps the terminal from echoing Ctrl-C as ^C, which would push a display out of its place."""
    modes = None
    with contextlib.suppress(OSError, termios.error):
        modes = termios.tcgetattr(stream.fileno())[3]
        _set_modes(stream, modes & ~termios.ECHOCTL)
    _taken.append((stream, modes))


def give_back() -> None:
    """Undoes `take`, once the display is closed."""
    while _taken:
        stream, modes = _taken.pop()
        if modes is not None:
            _set_modes(stream, modes)


def abandon() -> None:
    """Undoes `take` under a display that is still drawn, before the process ends at once."""
    for stream, _ in _taken:
        with contextlib.suppress(OSError, ValueError):
            stream.write(f"{_SHOW_CURSOR}\n")
            stream.flush()
    give_back()


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
