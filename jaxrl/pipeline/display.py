"""The display of a pipeline: its stages on a terminal, redrawn in place; plain lines anywhere else."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from jaxrl.config import text
from jaxrl.reporting.display.live_panel import LivePanel

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_SECONDS = 60.0  # between lines about a command, if the display cannot be redrawn


class PipelineDisplay:
    """Shows the progress of a pipeline, and writes the same lines to its log."""

    def __init__(self, stages: Sequence[str], log: Path, stream: TextIO | None = None) -> None:
        """Takes the stages that are looked at, and the file of the log, which is continued."""
        self._stages = dict.fromkeys(stages, "")
        self._log = log
        self._current = ""
        self._line = ""
        self._started = self._shown = time.monotonic()
        self._panel = LivePanel(self._table, stream)
        self._panel.open()

    def _table(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, said in self._stages.items():
            line = said
            if name == self._current:
                line = f"{text.clock(time.monotonic() - self._started)}  {self._line}"
            grid.add_row(
                Text(name, style="bold" if name == self._current else ""),
                Text(line, no_wrap=True, overflow="ellipsis"),
            )
        return grid

    def begin(self, stage: str, line: str) -> None:
        """Shows that a stage begins."""
        self._current = stage
        self._line = ""
        self._started = self._shown = time.monotonic()
        self.message(f"[{list(self._stages).index(stage) + 1}/{len(self._stages)}] {stage}: {line}")

    def follow(self, line: str) -> None:
        """Takes the last line of the command that runs."""
        if line:
            self._line = self._panel.printable(line)
        if not self._panel.is_live and time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            said = self._line and f": {self._line}"
            self._panel.message(f"  {self._current} {text.clock(self._shown - self._started)}{said}")

    def end(self, stage: str, line: str) -> None:
        """Shows how a stage ended."""
        self._stages[stage] = self._panel.printable(line)
        self._current = ""
        self.message(f"[{list(self._stages).index(stage) + 1}/{len(self._stages)}] {stage}: {line}")

    def message(self, line: str) -> None:
        """Prints a line, and writes it to the log with the time."""
        self.log(line)
        self._panel.message(line)

    def log(self, line: str) -> None:
        """Writes a line to the log alone."""
        now = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(f"{now} {text.one_line(line)}\n")

    def copy(self, output: Path) -> None:
        """Appends the output of a command to the log."""
        with contextlib.suppress(OSError), self._log.open("ab") as log:
            log.write(output.read_bytes())

    def close(self) -> None:
        self._panel.close()
