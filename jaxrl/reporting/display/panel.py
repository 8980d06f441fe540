"""One run as a panel that fits the terminal: `train` draws one, `watch` one for each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxrl.config import text
from jaxrl.reporting.display.progress import ITERATION, LENGTH, PACE, RETURN, RunProgress, metric_text

MAX_WIDTH = 100

_SPACIOUS = 24  # lines of a terminal; on fewer there are no blank ones in the panel
_EVALUATION_COLORS = ("green", "yellow")
_PHASES = {f"time/{phase}_seconds": phase for phase in ("compile", "train", "evaluate", "save")}


@dataclass(eq=False)
class RunPanel:
    """Draws a run at every refresh by rich; its only state is the spinner's frame.

    Attributes:
      compact: draw only progress and curves.
      state: of the run, beside the title; None for a line with the phase and the spinner, and one with the
        load of the machine, as the run logged it.
      place: the path of the run, for the lower border.
      notes: lines below everything else.
    """

    run: RunProgress
    _: KW_ONLY
    compact: bool = False
    state: Text | None = None
    place: str = ""
    notes: Sequence[Text] = ()
    spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, MAX_WIDTH)
        curves = list(_curves(self.run))
        if self.compact:
            short = [curve for curve in curves if curve[0] != LENGTH]
            parts: list[RenderableType] = [self._bar(self._steps()), self._curves(width - 4, short)]
        else:
            parts = list(self._long(width - 4, curves))
        if console.height < _SPACIOUS:
            parts = [part for part in parts if not isinstance(part, Text) or part.plain]
        title = Text(self.run.title, style="bold", overflow="ellipsis", no_wrap=True)
        if self.state is not None:
            title = Text.assemble(title, "  ", self.state, overflow="ellipsis", no_wrap=True)
        yield Panel(
            Group(*parts, *(_line(note) for note in self.notes)),
            title=title, title_align="left", subtitle=Text(self.place, style="dim") if self.place else None,
            subtitle_align="left", box=box.ROUNDED, border_style="dim", width=width,
        )  # fmt: skip

    def _long(self, width: int, curves: Sequence[tuple[str, str, str]]) -> Iterator[RenderableType]:
        run = self.run
        if run.subtitle:
            yield _line(Text(run.subtitle, style="dim"))
        if run.fraction() is not None:
            yield self._bar()
        counts = [self._steps()]
        if run.clock != "updates":
            # Every algorithm counts its gradient steps under its own name.
            updates = [x for key, x in run.latest.items() if key.endswith("/updates")]
            counts += [f"{text.count(x)} updates" for x in updates]
        spent = f" of {text.clock(run.total_seconds)}" if run.total_seconds else " elapsed"
        yield _line(Text(", ".join([*counts, text.clock(run.elapsed()) + spent])))
        if self.state is None:
            yield self._phase(width)
        yield from (Text(), self._curves(width, curves))
        if run.highlights:
            yield from (Text(), self._numbers(width))
        lines = [self._seconds(), self._machine() if self.state is None else ""]
        if any(lines):
            yield Text()
            yield from (_line(Text(line, style="dim")) for line in lines if line)

    def _steps(self) -> str:
        budget = self.run.total_steps
        return f"{self.run.steps:,}" + (f" of {budget:,}" if budget else "") + f" {self.run.clock}"

    def _bar(self, *cells: str) -> Table:
        run = self.run
        fraction = run.fraction() or 0.0
        remaining = "" if run.finished else f"ETA {text.clock(run.remaining())}"
        bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar.add_column(ratio=1)
        for _ in range(2 + len(cells)):
            bar.add_column(justify="right", no_wrap=True)
        bar.add_row(ProgressBar(total=1.0, completed=fraction), f"{fraction:.1%}", *cells, remaining)
        return bar

    def _phase(self, width: int) -> RenderableType:
        run = self.run
        if run.finished:
            return _line(Text(run.phase, style="bold green"))
        waited = int(run.now() - run.phase_since)
        phase = Text(f"{run.phase}…" + (f" {waited} s" if waited else ""))
        phase.truncate(width - 2, overflow="ellipsis")  # The spinner would wrap it.
        self.spinner.update(text=phase)
        return self.spinner

    def _curves(self, width: int, curves: Sequence[tuple[str, str, str]]) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", min_width=16, no_wrap=True)
        table.add_column(justify="right", min_width=8, no_wrap=True)
        table.add_column(no_wrap=True)
        for key, label, color in curves:
            value = self.run.latest.get(key)
            shown = text.pace(value) if key == PACE else text.number(value)
            sparkline = self.run.histories[key].sparkline(max(width - 32, 0))
            table.add_row(label, Text(shown, style="bold"), Text(sparkline, style=color))
        return table

    def _numbers(self, width: int) -> Table:
        highlights = self.run.highlights
        label_width = max(14, *(len(label) for _, label in highlights))
        pairs = max(1, min(3, width // (label_width + 14)))
        table = Table.grid(padding=(0, 1, 0, 0))
        for pair in range(pairs):
            table.add_column(style="dim", min_width=label_width, no_wrap=True)
            table.add_column(justify="right", min_width=10, no_wrap=True)
            if pair < pairs - 1:
                table.add_column(min_width=max(0, (width - pairs * (label_width + 13)) // (pairs - 1)))
        for first in range(0, len(highlights), pairs):
            cells: list[str] = []
            for key, label in highlights[first : first + pairs]:
                cells += [label, metric_text(key, self.run.latest.get(key)), ""]
            table.add_row(*cells[: len(table.columns)])
        return table

    def _seconds(self) -> str:
        latest = self.run.latest
        parts = [f"{label} {text.seconds(latest[key])}" for key, label in _PHASES.items() if key in latest]
        if "checkpoint/step" in latest:
            parts.append(f"checkpoint at {text.count(latest['checkpoint/step'])}")
        return ", ".join(parts)

    def _machine(self) -> str:
        """The load of the cores and the devices, and the seconds of an iteration."""
        latest = self.run.latest
        cores = text.load(latest.get("host/cpu_utilization"), latest.get("host/peak_memory_bytes"))
        devices = text.load(latest.get("device/utilization"), latest.get("device/peak_memory_bytes"))
        parts = [f"{name} {x}" for name, x in (("cores", cores), ("devices", devices)) if x != "-"]
        if ITERATION in latest:
            parts.append(f"{text.interval(latest[ITERATION])} per iteration")
        return ", ".join(parts)


def _curves(run: RunProgress) -> Iterator[tuple[str, str, str]]:
    """(metric, label, color) of the curves."""
    yield RETURN, "return, training", "cyan"
    for (key, label), color in zip(run.evaluations, _EVALUATION_COLORS, strict=False):
        yield key, f"return, {label}", color
    yield LENGTH, "episode length", "blue"
    yield PACE, f"{run.clock} per second", "magenta"


def _line(content: Text) -> Text:
    content.overflow = "ellipsis"
    content.no_wrap = True
    return content
