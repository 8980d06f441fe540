"""A run in the cell of a notebook: the panel of a terminal as a picture, drawn anew at each update."""

from __future__ import annotations

import io
import sys
from typing import Any

from jaxrl.reporting.display.progress import RunProgress

_WIDTH = 100  # characters
_PAGE = '<pre style="line-height:1.2;font-family:monospace">{code}</pre>'


def is_here() -> bool:
    """True if this process is the kernel of a notebook, so that standard output is a cell."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookView:
    """A panel below the cell, drawn again at every row and phase.

    No thread draws it: one would continue after a user's own loop that never closes its display.
    """

    def __init__(self, run: RunProgress) -> None:
        from IPython.display import display

        from jaxrl.reporting.display.panel import RunPanel

        # The patterns of dots are wider than other characters in the fonts of browsers.
        self._panel = RunPanel(run, spinner="line")
        self._handle: Any = display(self._picture(), display_id=True)

    def row(self, scalars: object) -> None:
        self._handle.update(self._picture())

    def phase(self) -> None:
        self._handle.update(self._picture())

    def message(self, line: str) -> None:
        print(line)

    def close(self) -> None:
        self._handle.update(self._picture())

    def _picture(self) -> Any:
        import rich.console
        from IPython.display import HTML

        console = rich.console.Console(
            file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True, force_jupyter=False
        )
        console.print(self._panel)
        return HTML(console.export_html(inline_styles=True, code_format=_PAGE))
