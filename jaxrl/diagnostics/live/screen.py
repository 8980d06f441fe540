"""Several runs on a terminal: a panel each while they fit, else a line each; plain lines for a pipe."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from jaxrl.config import text
from jaxrl.diagnostics.live.live_run import LiveRun
from jaxrl.reporting.display.panel import RunPanel
from jaxrl.reporting.display.progress import CUT_OFF, EVALUATION, MODES, PACE, RETURN

_MAX_WIDTH = 110
_WIDE = 100  # narrower tables leave out host, device and the curve: the names of runs tell rows apart
_GAP = 2
_STYLES = {
    "training": "green",
    "done": "bold green",
    "starting": "cyan",
    "stopped": "red",
    "unreadable": "red",
}


@dataclass(frozen=True)
class LiveScreen:
    """Draws the runs at every refresh by rich; with `keys` also the one that ends the display."""

    runs: Sequence[LiveRun]
    machine: str
    keys: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _MAX_WIDTH)
        height = options.height or console.height
        footer = Text(self.machine + ("   q quits" if self.keys else ""), style="dim", no_wrap=True)
        footer.truncate(width, overflow="ellipsis")
        yield self._fit(console, options, width, height)
        yield footer

    def _fit(
        self, console: Console, options: ConsoleOptions, width: int, height: int
    ) -> Group | Table | Text:
        """The most detailed form of the runs that fits into `height` lines."""
        if not self.runs:
            return Text("no runs yet", style="dim")
        for compact in (False, True):
            panels = Group(*(_panel(run, compact) for run in self.runs))
            if len(console.render_lines(panels, options.update(height=None))) < height:
                return panels
        return _table(self.runs, width, height)


def plain(runs: Sequence[LiveRun]) -> Iterator[str]:
    """A line per run, without escape codes."""
    for run in runs:
        progress = run.progress
        latest = run.progress.latest
        parts = [
            run.path,
            progress.title.replace("  ", " "),
            progress.phase,
            f"{progress.fraction() or 0.0:.1%}",
            f"{progress.steps:,} {progress.clock}",
            f"{text.pace(latest.get(PACE))} {progress.clock}/s",
        ]
        shown = [(RETURN, "return"), *((key, f"{name} return") for key, name in progress.evaluations)]
        parts += [f"{name} {text.number(latest[key])}" for key, name in shown if key in latest]
        yield ", ".join([*parts, *_cut(run), *_usage(run), *([run.problem] if run.problem else [])])


def _panel(run: LiveRun, compact: bool) -> RunPanel:
    usage = [*_cut(run), *_usage(run)]
    if run.age is not None and not run.done:
        usage.append(f"last row {text.seconds(run.age)} ago")
    notes = [Text(", ".join(usage), style="dim")]
    if run.problem:
        notes.insert(0, Text(text.one_line(run.problem), style="red"))
    return RunPanel(
        run.progress,
        compact=compact,
        state=_state(run),
        place=text.printable(run.path),
        load=False,
        notes=notes,
    )


def _table(runs: Sequence[LiveRun], width: int, height: int) -> Table:
    """As many runs as fit; training ones come first."""
    wide = width >= _WIDE
    clocks = {run.progress.clock for run in runs}
    pace = f"{clocks.pop()}/s" if len(clocks) == 1 else "per second"
    evaluations = _evaluations(runs)
    numbers = ["done", pace, "return", *(label for _, label in evaluations)]
    headings = ["state", *numbers, *(("training", "host", "device") if wide else ())]
    ordered = sorted(runs, key=lambda run: run.done)
    room = max(height - 3, 1)
    rows = [_cells(run, evaluations, wide) for run in ordered[:room]]
    used = sum(max(map(cell_len, map(str, column))) + _GAP for column in zip(headings, *rows, strict=True))
    folder = _common_folder([run.path for run in runs])
    table = Table(box=None, padding=(0, _GAP, 0, 0), width=width, header_style="dim")
    table.add_column(
        Text(f"run in {_crop(folder, width - used - 10)}" if folder else "run"), ratio=1, no_wrap=True
    )
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    for run, row in zip(ordered, rows, strict=False):
        name = text.printable(run.path.removeprefix(folder))
        table.add_row(Text(_crop(name, width - used - _GAP)), *row)
    if len(ordered) > room:
        table.add_row(Text(f"and {len(ordered) - room} more", style="dim"))
    return table


def _evaluations(runs: Sequence[LiveRun]) -> tuple[tuple[str, str], ...]:
    """(metric, heading) of evaluations: in the mode that decides and, if a run plays in both, in each."""
    both = any(len(run.progress.evaluations) > 1 for run in runs)
    return ((EVALUATION, "eval"), *(MODES if both else ()))


def _cells(run: LiveRun, evaluations: Sequence[tuple[str, str]], wide: bool) -> list[str | Text]:
    progress = run.progress
    latest = run.progress.latest
    cells: list[str | Text] = [
        _state(run),
        f"{progress.fraction() or 0.0:.0%}",
        text.pace(latest.get(PACE)),
        text.number(latest.get(RETURN)),
        *(text.number(latest.get(key)) for key, _ in evaluations),
    ]
    if wide:
        curve = Text(progress.histories[RETURN].sparkline(16).ljust(16), style="cyan")
        cells += [curve, text.load(*run.host), text.load(*run.device)]
    return cells


def _common_folder(paths: Sequence[str]) -> str:
    """The folders that all paths begin with, with the slash at their end; "" if there are none."""
    if len(paths) < 2:
        return ""
    levels = zip(*(path.split("/")[:-1] for path in paths), strict=False)
    return "".join(
        f"{level[0]}/" for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels)
    )


def _crop(name: str, room: int) -> str:
    """A name without its middle if that is longer than `room`: runs differ at the ends of their names."""
    if len(name) <= room or room < 5:
        return name
    end = (room - 1) * 2 // 3
    return f"{name[: room - 1 - end]}…{name[-end:]}"


def _state(run: LiveRun) -> Text:
    phase = run.progress.phase
    return Text(phase, style=_STYLES.get(phase.partition(":")[0], "yellow"))


def _cut(run: LiveRun) -> list[str]:
    count = run.progress.latest.get(CUT_OFF)
    return [f"{count:.0f} evaluated episodes were cut off"] if count else []


def _usage(run: LiveRun) -> list[str]:
    named = (("host", run.host), ("device", run.device))
    return [f"{name} {shown}" for name, usage in named if (shown := text.load(*usage)) != "-"]
