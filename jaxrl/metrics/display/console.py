"""The display of a run: one live screen on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from jaxrl.metrics import text
from jaxrl.metrics.display.board import Board
from jaxrl.metrics.logs import WarningHandler
from jaxrl.metrics.writers.base import Writer

_HEADER_EVERY = 25


class Console(Writer):
    """Shows a run to a person, from the first compile to the summary.

    On a terminal one screen is redrawn several times a second by a thread of its own, so that time goes on
    while XLA compiles; otherwise one line per row, without escape codes. Warnings that are logged
    meanwhile are shown too.
    """

    def __init__(
        self,
        title: str,
        subtitle: str,
        total_steps: int | None,
        total_seconds: float | None = None,
        stream: TextIO | None = None,
    ) -> None:
        """Shows the display.

        Args:
          title: what is trained.
          subtitle: on what: network, number of environments, devices.
          total_steps: budget in environment steps, or None.
          total_seconds: budget in seconds, or None; training ends at whichever comes first.
          stream: where to; None takes standard output.
        """
        stream = sys.stdout if stream is None else stream
        self._encoding = getattr(stream, "encoding", None)
        self._board = Board(self._clean(title), self._clean(subtitle), total_steps, total_seconds)
        live = _can_redraw(stream)
        self._view: _View = _LiveView(self._board, stream) if live else _PlainView(self._board, stream)
        self._warnings = WarningHandler(lambda line: self._view.message(self._clean(line)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._board.update(step, scalars)
        self._view.row(scalars)

    def resume_from(self, step: int) -> None:
        self._board.start_at(step)
        self._view.message(f"resumed from the checkpoint at step {step:,}")

    def status(self, phase: str) -> None:
        self._board.enter(self._clean(phase))
        self._view.phase()

    def message(self, line: str) -> None:
        self._view.message(self._clean(line))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._board.finish(self._clean(_conclusion(summary)))
        self._view.phase()

    def close(self) -> None:
        self._warnings.close()
        self._view.close()

    def _clean(self, line: str) -> str:
        return text.printable(line, self._encoding)


def _can_redraw(stream: TextIO) -> bool:
    known_terminal = stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return known_terminal and (stream.encoding or "").lower().replace("-", "") == "utf8"


class _View(Protocol):
    """One way to show a board."""

    def row(self, scalars: Mapping[str, float]) -> None: ...

    def phase(self) -> None: ...

    def message(self, line: str) -> None: ...

    def close(self) -> None: ...


class _LiveView:
    """The board on a terminal, redrawn by rich's thread."""

    def __init__(self, board: Board, stream: TextIO) -> None:
        import rich.console
        import rich.live

        from jaxrl.metrics.display.screen import Screen

        self._console = rich.console.Console(file=stream, force_terminal=True)
        self._live = rich.live.Live(Screen(board), console=self._console, refresh_per_second=8)
        self._live.start(refresh=True)

    def row(self, scalars: Mapping[str, float]) -> None:
        del scalars  # The thread reads the board.

    def phase(self) -> None:
        self._live.refresh()

    def message(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()


class _PlainView:
    """The board as a table that grows by a line per row of training metrics."""

    # Key, heading, width.
    _COLUMNS = (
        ("episode/return", "return", 9),
        ("episode/length", "length", 8),
        ("eval/return", "eval", 9),
        ("loss/policy", "policy", 10),
        ("loss/value", "value", 10),
        ("loss/entropy", "entropy", 8),
        ("ppo/approx_kl", "kl", 9),
    )

    def __init__(self, board: Board, stream: TextIO) -> None:
        self._board = board
        self._stream = stream
        self._lock = threading.Lock()
        self._rows = 0
        self._announced: set[str] = set()
        self.message(f"{board.title} | {board.subtitle}")

    def row(self, scalars: Mapping[str, float]) -> None:
        # Evaluations come in rows of their own; they show in the next line of training metrics.
        if "time/steps_per_second" not in scalars:
            return
        if self._rows % _HEADER_EVERY == 0:
            titles = [f"{title:>{width}}" for _, title, width in self._COLUMNS]
            self.message(" ".join([f"{'steps':>13}", f"{'%':>5}", f"{'steps/s':>8}", *titles]))
        self._rows += 1
        fraction = self._board.fraction()
        latest = self._board.latest
        cells = [
            f"{self._board.steps:>13,}",
            f"{'-' if fraction is None else format(100 * fraction, '.1f'):>5}",
            f"{text.pace(scalars['time/steps_per_second']):>8}",
        ]
        cells += [f"{text.number(latest.get(key)):>{width}}" for key, _, width in self._COLUMNS]
        self.message(" ".join(cells))

    def phase(self) -> None:
        # A phase that comes back after every evaluation is worth one line, not hundreds.
        if self._board.phase not in self._announced:
            self._announced.add(self._board.phase)
            self.message(self._board.phase)

    def message(self, line: str) -> None:
        with self._lock:  # Warnings come from other threads.
            self._stream.write(line + "\n")
            self._stream.flush()

    def close(self) -> None:
        self._stream.flush()


def _conclusion(summary: Mapping[str, Any]) -> str:
    reasons = {"return": "target return reached", "steps": "all steps made", "seconds": "time is up"}
    reason = str(summary.get("stop_reason", ""))
    if reason.startswith("SIG"):
        return f"{reason}: saved at step {summary['steps']:,}; the same command goes on from there"
    parts = [f"done: {reasons.get(reason, reason)}"]
    if "eval_return" in summary:
        parts.append(f"greedy return {text.number(summary['eval_return'])}")
    if "steps" in summary and "seconds" in summary:
        parts.append(f"{summary['steps']:,} steps in {text.seconds(summary['seconds'])}")
    return ", ".join(parts)
