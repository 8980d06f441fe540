"""Several runs on a terminal: a panel each while they fit, else a line each; plain lines for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from jaxrl.diagnostics.live.live_run import LiveRun
from jaxrl.metrics import text
from jaxrl.reporting.display.panel import RunPanel
from jaxrl.reporting.display.progress import EVALUATION, PACE, RETURN

_MAX_WIDTH = 110
_WIDE = 100  # narrower tables leave out host and device
_STYLES = {
    "training": "green",
    "done": "bold green",
    "starting": "cyan",
    "stopped": "red",
    "unreadable": "red",
}


class LiveScreen:
    """Draws the runs at every refresh by rich."""

    def __init__(self, runs: Sequence[LiveRun], machine: str, keys: bool = True) -> None:
        """Takes the runs, a description of this machine, and True to show the key that ends the display."""
        self._runs = runs
        self._machine = machine
        self._keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _MAX_WIDTH)
        height = options.height or console.height
        footer = Text(self._machine + ("   q quits" if self._keys else ""), style="dim", no_wrap=True)
        footer.truncate(width, overflow="ellipsis")
        yield self._fitting(console, options, width, height)
        yield footer

    def _fitting(
        self, console: Console, options: ConsoleOptions, width: int, height: int
    ) -> Group | Table | Text:
        """The most detailed form of the runs that fits into `height` lines."""
        if not self._runs:
            return Text("no runs yet", style="dim")
        for compact in (False, True):
            panels = Group(*(_panel(run, compact) for run in self._runs))
            if len(console.render_lines(panels, options.update(height=None))) < height:
                return panels
        return _table(self._runs, width, height)


def plain(runs: Sequence[LiveRun]) -> Iterator[str]:
    """A line per run, without escape codes."""
    for run in runs:
        progress, latest = run.progress, run.progress.latest
        parts = [
            run.path,
            progress.title.replace("  ", " "),
            progress.phase,
            f"{progress.fraction() or 0.0:.1%}",
            f"{progress.steps:,} {progress.clock}",
            f"{text.pace(latest.get(PACE))} {progress.clock}/s",
        ]
        for key, name in ((RETURN, "return"), (EVALUATION, "greedy return")):
            if key in latest:
                parts.append(f"{name} {text.number(latest[key])}")
        yield ", ".join([*parts, *_usage(run), *([run.problem] if run.problem else [])])


def _panel(run: LiveRun, compact: bool) -> RunPanel:
    usage = _usage(run)
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
    """As many runs as fit; those that train come first."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="dim")
    table.add_column("run", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    clocks = {run.progress.clock for run in runs}
    pace = f"{clocks.pop()}/s" if len(clocks) == 1 else "per second"
    for heading in ("done", pace, "return", "greedy"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("training", no_wrap=True, min_width=16)
    wide = width >= _WIDE
    for heading in ("host", "device") if wide else ():
        table.add_column(heading, no_wrap=True)
    ordered = sorted(runs, key=lambda run: run.done)
    room = max(height - 3, 1)
    for run in ordered[:room]:
        progress, latest = run.progress, run.progress.latest
        table.add_row(
            Text(text.printable(run.path)),
            _state(run),
            f"{progress.fraction() or 0.0:.0%}",
            text.pace(latest.get(PACE)),
            text.number(latest.get(RETURN)),
            text.number(latest.get(EVALUATION)),
            Text(progress.histories[RETURN].sparkline(16), style="cyan"),
            *((text.load(*run.host), text.load(*run.device)) if wide else ()),
        )
    if len(ordered) > room:
        table.add_row(Text(f"and {len(ordered) - room} more", style="dim"))
    return table


def _state(run: LiveRun) -> Text:
    phase = run.progress.phase
    return Text(phase, style=_STYLES.get(phase.partition(":")[0], "yellow"))


def _usage(run: LiveRun) -> list[str]:
    named = (("host", run.host), ("device", run.device))
    return [f"{name} {shown}" for name, usage in named if (shown := text.load(*usage)) != "-"]
