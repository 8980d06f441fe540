"""The display of a run: a live panel on a terminal or in a notebook, plain lines anywhere else."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from jaxrl.config import text
from jaxrl.reporting.display.live_panel import LivePanel, can_redraw, write_line
from jaxrl.reporting.display.progress import ITERATION, LENGTH, PACE, RETURN, RunProgress, metric_text
from jaxrl.reporting.logs import WarningHandler
from jaxrl.reporting.writers.writer import Writer

_HEADER_EVERY = 25
_PLAIN_WIDTH = 79  # of a line, so that it does not wrap on a terminal
_WIDTH = 100  # characters
_PAGE = '<pre style="line-height:1.2;font-family:monospace">{code}</pre>'


class Console(Writer):
    """Shows a run to a person, from the first compile to the summary.

    On a terminal it is one panel that a thread redraws several times a second, so that the time keeps
    running while XLA compiles, and below the cell of a notebook one that every row redraws; elsewhere it is
    one line per row, without escape codes. Warnings that are logged meanwhile are shown too.
    """

    def __init__(
        self,
        title: str,
        subtitle: str,
        total_steps: int | None,
        total_seconds: float | None = None,
        *,
        highlights: Sequence[tuple[str, str]] = (),
        clock: str = "steps",
        stream: TextIO | None = None,
    ) -> None:
        """Starts the display on a stream, None for standard output; the others are of `RunProgress`.

        Plain lines show the first highlights that fit.
        """
        in_cell = stream is None and _is_kernel()
        # Standard output is None if the process was started without one.
        stream = stream or sys.stdout or _NullStream()
        self._encoding = getattr(stream, "encoding", None)
        self._run = RunProgress(
            self._clean(title), self._clean(subtitle), total_steps, total_seconds, highlights, clock
        )
        self._view: NotebookView | _LiveView | _PlainView
        if in_cell:
            self._view = NotebookView(self._run)
        else:
            self._view = (_LiveView if can_redraw(stream) else _PlainView)(self._run, stream)
        self._warnings = WarningHandler(lambda line: self._view.message(self._clean(line)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.update(step, scalars)
        self._view.row(scalars)

    def resume_from(self, step: int) -> None:
        self._run.start_at(step)
        self._view.message(f"resumed from the checkpoint at {self._run.clock[:-1]} {step:,}")

    def status(self, phase: str) -> None:
        self._run.enter(self._clean(phase))
        self._view.phase()

    def message(self, line: str) -> None:
        self._view.message(self._clean(line))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._run.finish(self._clean(_conclusion(summary, self._run.clock)))
        self._view.phase()

    def close(self) -> None:
        self._warnings.close()
        self._view.close()

    def _clean(self, line: str) -> str:
        return text.printable(line, self._encoding)


class _NullStream(io.StringIO):
    def write(self, line: str) -> int:
        return len(line)


class _LiveView(LivePanel):
    def __init__(self, run: RunProgress, stream: TextIO) -> None:
        from jaxrl.reporting.display.panel import RunPanel

        panel = RunPanel(run)
        super().__init__(lambda: panel, stream)
        self.open()
        self.phase()

    def row(self, scalars: Mapping[str, float]) -> None:
        """Nothing to do: the thread reads the run's progress."""

    def phase(self) -> None:
        self.refresh()


class _PlainView:
    """A table that grows by a line per row of training metrics."""

    def __init__(self, run: RunProgress, stream: TextIO) -> None:
        self._run = run
        self._stream = stream
        self._lock = threading.Lock()
        self._rows = 0
        self._announced: set[str] = set()
        self._columns: list[tuple[str, str, int]] = []
        self.message(run.title)
        self.message(run.subtitle)

    def row(self, scalars: Mapping[str, float]) -> None:
        # Evaluations come in rows of their own; they show in the next line of training metrics.
        if PACE not in scalars:
            return
        run = self._run
        columns = list(_columns(run))
        if self._rows % _HEADER_EVERY == 0 or columns != self._columns:
            self._columns = columns
            # The heading of the pace has 7 characters.
            pace = f"{run.clock}/s" if len(run.clock) <= 5 else "per s"
            headings = [f"{heading:>{width}}" for _, heading, width in columns]
            self.message(" ".join([_begin(run.clock, "%", pace), *headings]))
        self._rows += 1
        fraction = run.fraction()
        share = "-" if fraction is None else f"{100 * fraction:.1f}"
        cells = [_begin(f"{run.steps:,}", share, text.pace(scalars[PACE]))]
        cells += [f"{_cell(key, run.latest.get(key)):>{width}}" for key, _, width in columns]
        self.message(" ".join(cells))

    def phase(self) -> None:
        # A phase that returns after every evaluation is worth one line, not hundreds.
        if self._run.phase not in self._announced:
            self._announced.add(self._run.phase)
            self.message(self._run.phase)

    def message(self, line: str) -> None:
        with self._lock:  # Warnings come from other threads.
            write_line(self._stream, line)

    def close(self) -> None:
        """Nothing to do: every line has been flushed."""


def _columns(run: RunProgress) -> Iterator[tuple[str, str, int]]:
    """(metric, heading, width) of the columns of a plain row after the pace, as many as fit on a line."""
    labels = ((RETURN, "return"), (LENGTH, "length"), *run.evaluations)
    columns = [(ITERATION, "iteration", 9), *((key, label, 7) for key, label in labels)]
    columns += [(key, label, max(len(label), 8)) for key, label in run.highlights]
    room = _PLAIN_WIDTH - len(_begin("", "", ""))
    for key, label, width in columns:
        if 1 + width <= room:
            room -= 1 + width
            yield key, label, width


def _begin(steps: str, share: str, pace: str) -> str:
    return f"{steps:>11} {share:>5} {pace:>7}"


def _cell(key: str, value: float | None) -> str:
    return text.interval(value) if key == ITERATION and value is not None else metric_text(key, value)


def _conclusion(summary: Mapping[str, Any], clock: str) -> str:
    reasons = {
        "return": "target return reached",
        "steps": f"all {clock} made",
        "seconds": "time is up",
        "wall_seconds": "the time of the process is up",
    }
    reason = str(summary.get("stop_reason", ""))
    if reason.startswith("SIG"):
        return f"{reason}: saved at {clock[:-1]} {summary['steps']:,}"
    parts = [f"done: {reasons.get(reason, reason)}"]
    if summary.get("eval_return") is not None:
        mode = summary.get("eval_mode") or ""
        cut, of = summary.get("eval_cut_off"), summary.get("eval_episodes")
        aside = f" ({cut} of {of} episodes cut off)" if cut else ""
        parts.append(f"{mode} return {text.number(summary['eval_return'])}{aside}".lstrip())
        others = {name: x for name, x in (summary.get("eval_returns") or {}).items() if name != mode}
        parts += [f"{name} {text.number(x)}" for name, x in others.items()]
    if "steps" in summary and "seconds" in summary:
        parts.append(f"{summary['steps']:,} {clock} in {text.seconds(summary['seconds'])}")
    return ", ".join(parts)


def _is_kernel() -> bool:
    """True if this process is the kernel of a notebook, so that standard output is a cell."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookView:
    """A panel below the cell, drawn again at every row and phase.

    No thread draws it: one would continue after a user's own loop that never closes its display.
    """

    def __init__(self, run: RunProgress) -> None:
        from IPython.display import display
        from rich.spinner import Spinner

        from jaxrl.reporting.display.panel import RunPanel

        # The patterns of dots are wider than other characters in the fonts of browsers.
        self._panel = RunPanel(run, spinner=Spinner("line", style="cyan"))
        self._handle: Any = display(self._picture(), display_id=True)

    def row(self, scalars: object = None) -> None:
        self._handle.update(self._picture())

    phase = close = row

    def message(self, line: str) -> None:
        print(line)

    def _picture(self) -> Any:
        import rich.console
        from IPython.display import HTML

        console = rich.console.Console(
            file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True, force_jupyter=False
        )
        console.print(self._panel)
        return HTML(console.export_html(inline_styles=True, code_format=_PAGE))
