"""A panel at the foot of a terminal, redrawn in place, below lines that stay; else lines alone.

The terminal's modes are changed while a display is open, and restored afterwards.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from jaxrl.config import text
from jaxrl.config.local_files import discard

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_SHOW_CURSOR = "\x1b[?25h"
# The stream of the display, and the local modes to restore; empty without a display.
_prepared: list[tuple[TextIO, int | None]] = []


class LivePanel:
    """The panel; `is_live` if the output can be redrawn, otherwise it is never drawn."""

    def __init__(self, draw: Callable[[], RenderableType], stream: TextIO | None = None) -> None:
        """Takes the function that makes the panel at each drawing, and the output (None: standard)."""
        self._draw = draw
        self._stream = stream or sys.stdout
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def open(self) -> None:
        """Draws the panel from now on, if the output is a terminal that can be redrawn."""
        if self._stream is None or not can_redraw(self._stream):
            return
        import rich.console
        import rich.live

        _prepare(self._stream)
        console = rich.console.Console(file=self._stream, force_terminal=True)
        self._live = rich.live.Live(console=console, refresh_per_second=8, get_renderable=self._draw)
        self._live.start()

    def refresh(self) -> None:
        """Draws the panel at once, if it is open."""
        if self._live is not None:
            self._live.refresh()

    def printable(self, line: str) -> str:
        """The line with what this output can show."""
        return text.printable(line, getattr(self._stream, "encoding", None))

    def message(self, line: str) -> None:
        """Prints a line, above the panel if it is open."""
        line = self.printable(line)
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        elif self._stream is not None:
            write_line(self._stream, line)

    def close(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None
            _restore()


def write_line(stream: TextIO, line: str) -> None:
    """Writes a line at once; nothing from then on if the disk is full, or the reader has gone."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        discard(stream)


def can_redraw(stream: TextIO) -> bool:
    """True if the stream is a terminal on which a display can be redrawn."""
    # `!jaxrl train` in a notebook has a terminal, but its cell cannot redraw a panel.
    in_notebook = "JPY_PARENT_PID" in os.environ
    known = os.environ.get("TERM", "").lower() not in ("dumb", "unknown") and not in_notebook
    return stream.isatty() and known and (stream.encoding or "").lower().replace("-", "") == "utf8"


def _prepare(stream: TextIO) -> None:
    """Keeps the terminal from echoing Ctrl-C as ^C, which would push a display out of its place."""
    modes = None
    with contextlib.suppress(OSError, termios.error):
        modes = termios.tcgetattr(stream.fileno())[3]
        _set_modes(stream, modes & ~termios.ECHOCTL)
    _prepared.append((stream, modes))


def _restore() -> None:
    while _prepared:
        stream, modes = _prepared.pop()
        if modes is not None:
            _set_modes(stream, modes)


def restore_before_exit() -> None:
    """Puts the terminal back under a display that is still drawn, before the process ends at once."""
    for stream, _ in _prepared:
        with contextlib.suppress(OSError, ValueError):
            stream.write(f"{_SHOW_CURSOR}\n")
            stream.flush()
    _restore()


def _set_modes(stream: TextIO, modes: int) -> None:
    with contextlib.suppress(OSError, ValueError, termios.error):
        terminal = stream.fileno()
        now = termios.tcgetattr(terminal)
        now[3] = modes
        in_background = False
        with contextlib.suppress(OSError):  # not the terminal that started this
            in_background = os.tcgetpgrp(terminal) != os.getpgrp()
        if not in_background:  # The kernel would stop this process for it.
            termios.tcsetattr(terminal, termios.TCSANOW, now)
