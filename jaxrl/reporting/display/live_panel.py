"""A panel at the foot of a terminal, redrawn in place, with lines that stay above it; else lines alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from jaxrl.config import text
from jaxrl.config.local_files import discard
from jaxrl.reporting.display import terminal
from jaxrl.reporting.display.terminal import can_redraw

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class LivePanel:
    """The panel.

    Attributes:
      is_live: if the output can be redrawn; otherwise the panel is never drawn.
    """

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

        terminal.prepare(self._stream)
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
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except OSError:
                discard(self._stream)  # Its reader has gone; what is shown continues.

    def close(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None
            terminal.restore()
