"""Followed runs on a terminal: a panel each while they fit, else a line each; plain lines for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jaxrl.diagnostics.live.follower import Followed
from jaxrl.metrics import text

_GLYPHS = "▁▂▃▄▅▆▇█"
_MAX_WIDTH = 110
_PANEL_LINES = 8
_CURVES = (
    ("episode/return", "return, training", "cyan"),
    ("eval/return", "return, greedy", "green"),
    ("time/steps_per_second", "steps per second", "magenta"),
)
_STYLES = {
    "training": "green",
    "done": "bold green",
    "starting": "cyan",
    "stopped": "red",
    "unreadable": "red",
}


class Screen:
    """Draws the runs anew each time rich asks."""

    def __init__(self, runs: Sequence[Followed], machine: str, keys: bool = True) -> None:
        """`machine` describes this machine; `keys` tells which end the display."""
        self._runs = runs
        self._machine = machine
        self._keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _MAX_WIDTH)
        height = options.height or console.height
        footer = Text(self._machine + ("   q quits" if self._keys else ""), style="dim", no_wrap=True)
        footer.truncate(width, overflow="ellipsis")
        if not self._runs:
            yield Text("no runs yet", style="dim")
        elif len(self._runs) * _PANEL_LINES + 1 <= height:
            yield from (_panel(run, width) for run in self._runs)
        else:
            yield _lines(self._runs, width, height)
        yield footer


def plain(runs: Sequence[Followed]) -> Iterator[str]:
    """A line per run, without escape codes."""
    for run in runs:
        parts = [
            run.path,
            run.title.replace("  ", " "),
            run.state,
            f"{run.fraction:.1%}",
            f"{run.steps:,} steps",
        ]
        parts.append(f"{text.pace(run.latest.get('time/steps_per_second'))} steps/s")
        for key, name in (("episode/return", "return"), ("eval/return", "greedy return")):
            if key in run.latest:
                parts.append(f"{name} {text.number(run.latest[key])}")
        yield ", ".join([*parts, *_usage(run), *([run.problem] if run.problem else [])])


def _panel(run: Followed, width: int) -> Panel:
    inner = width - 4
    body: list[RenderableType] = [_progress(run)]
    if run.problem:
        body.append(Text(run.problem, style="red", overflow="ellipsis", no_wrap=True))
    curves = Table.grid(padding=(0, 2, 0, 0))
    curves.add_column(style="dim", min_width=16, no_wrap=True)
    curves.add_column(justify="right", min_width=8, no_wrap=True)
    curves.add_column(no_wrap=True)
    for key, label, color in _CURVES:
        value = run.latest.get(key)
        shown = text.pace(value) if key == "time/steps_per_second" else text.number(value)
        line = run.curves[key].sparkline(max(inner - 32, 0), _GLYPHS)
        curves.add_row(label, Text(shown, style="bold"), Text(line, style=color))
    title = Text.assemble((run.title, "bold"), "  ", _state(run))
    usage = [
        *_usage(run),
        *([] if run.age is None or run.done else [f"last row {text.seconds(run.age)} ago"]),
    ]
    body += [curves, Text(", ".join(usage), style="dim", overflow="ellipsis", no_wrap=True)]
    return Panel(
        Group(*body), title=title, title_align="left", subtitle=Text(run.path, style="dim"),
        subtitle_align="left", box=box.ROUNDED, border_style="dim", width=width,
    )  # fmt: skip


def _progress(run: Followed) -> Table:
    bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
    bar.add_column(ratio=1)
    for _ in range(3):
        bar.add_column(justify="right", no_wrap=True)
    remaining = "" if run.done else f"ETA {text.clock(run.remaining)}"
    steps = f"{run.steps:,} of {run.total_steps:,} steps"
    bar.add_row(ProgressBar(total=1.0, completed=run.fraction), f"{run.fraction:.1%}", steps, remaining)
    return bar


def _lines(runs: Sequence[Followed], width: int, height: int) -> Table:
    """As many runs as fit; those that train come first."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="dim")
    table.add_column("run", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    for heading in ("done", "steps/s", "return", "greedy"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("training", no_wrap=True, min_width=16)
    table.add_column("host", no_wrap=True)
    table.add_column("device", no_wrap=True)
    ordered = sorted(runs, key=lambda run: run.done)
    room = max(height - 3, 1)
    for run in ordered[:room]:
        latest = run.latest
        table.add_row(
            Text(run.path),
            _state(run),
            f"{run.fraction:.0%}",
            text.pace(latest.get("time/steps_per_second")),
            text.number(latest.get("episode/return")),
            text.number(latest.get("eval/return")),
            Text(run.curves["episode/return"].sparkline(16, _GLYPHS), style="cyan"),
            _share(*run.host),
            _share(*run.device),
        )
    if len(ordered) > room:
        table.add_row(Text(f"and {len(ordered) - room} more", style="dim"))
    return table


def _state(run: Followed) -> Text:
    return Text(run.state, style=_STYLES.get(run.state.partition(":")[0], "yellow"))


def _usage(run: Followed) -> list[str]:
    named = (("host", run.host), ("device", run.device))
    return [f"{name} {shown}" for name, usage in named if (shown := _share(*usage)) != "-"]


def _share(share: float | None, memory: float | None) -> str:
    parts = [] if share is None else [f"{share:.0%}"]
    parts += [] if memory is None else [f"{memory / 1e9:.1f} GB"]
    return " ".join(parts) or "-"
