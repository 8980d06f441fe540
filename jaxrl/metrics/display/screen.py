"""The live screen: one `Board` as a rich renderable that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxrl.metrics import text
from jaxrl.metrics.display.board import Board

_MAX_WIDTH = 100
_GLYPHS = "▁▂▃▄▅▆▇█"

_CURVES = (
    ("episode/return", "return, training", "cyan"),
    ("eval/return", "return, greedy", "green"),
    ("episode/length", "episode length", "blue"),
    ("time/steps_per_second", "steps per second", "magenta"),
)
_NUMBERS = (
    ("loss/policy", "policy loss"),
    ("loss/value", "value loss"),
    ("loss/entropy", "entropy"),
    ("ppo/approx_kl", "approx. KL"),
    ("ppo/clip_fraction", "clip fraction"),
    ("ppo/explained_variance", "explained var."),
    ("grad/norm", "grad norm"),
    ("ppo/learning_rate", "learning rate"),
)
_PHASES = (
    ("time/compile_seconds", "compile"),
    ("time/train_seconds", "train"),
    ("time/evaluate_seconds", "evaluate"),
    ("time/save_seconds", "save"),
)


class Screen:
    """Draws the board anew each time rich asks; keeps nothing but the spinner's phase."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._spinner = Spinner("dots", style="cyan")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _MAX_WIDTH)
        inner = width - 4
        body = Group(
            *self._progress(),
            self._status(),
            Text(),
            self._curves(inner),
            Text(),
            self._numbers(inner),
            Text(),
            self._seconds(),
        )
        title = Text(self._board.title, style="bold", overflow="ellipsis", no_wrap=True)
        yield Panel(body, title=title, title_align="left", box=box.ROUNDED, border_style="dim", width=width)

    def _progress(self) -> Iterator[RenderableType]:
        board = self._board
        yield Text(board.subtitle, style="dim", overflow="ellipsis", no_wrap=True)
        fraction = board.fraction()
        if fraction is not None:
            bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
            bar.add_column(ratio=1)
            bar.add_column(justify="right", no_wrap=True)
            bar.add_column(justify="right", no_wrap=True)
            remaining = f"ETA {text.clock(board.remaining())}"
            bar.add_row(ProgressBar(total=1.0, completed=fraction), f"{fraction:.1%}", remaining)
            yield bar
        steps = f"{board.steps:,}" + (f" of {board.total_steps:,}" if board.total_steps else "") + " steps"
        updates = f"{text.count(board.latest.get('ppo/updates', 0))} updates"
        spent = text.clock(board.elapsed())
        spent += f" of {text.clock(board.total_seconds)}" if board.total_seconds else " elapsed"
        yield Text(f"{steps}, {updates}, {spent}", overflow="ellipsis", no_wrap=True)

    def _curves(self, width: int) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", min_width=16, no_wrap=True)
        table.add_column(justify="right", min_width=8, no_wrap=True)
        table.add_column(no_wrap=True)
        for key, label, color in _CURVES:
            value = self._board.latest.get(key)
            shown = text.pace(value) if key == "time/steps_per_second" else text.number(value)
            line = self._board.curves[key].sparkline(max(width - 32, 0), _GLYPHS)
            table.add_row(label, Text(shown, style="bold"), Text(line, style=color))
        return table

    def _numbers(self, width: int) -> Table:
        pairs = max(1, min(3, width // 28))
        table = Table.grid(padding=(0, 1, 0, 0))
        for pair in range(pairs):
            table.add_column(style="dim", min_width=14, no_wrap=True)
            table.add_column(justify="right", min_width=10, no_wrap=True)
            if pair < pairs - 1:
                table.add_column(min_width=max(0, (width - pairs * 27) // max(pairs - 1, 1)))
        for first in range(0, len(_NUMBERS), pairs):
            cells: list[str] = []
            for key, label in _NUMBERS[first : first + pairs]:
                cells += [label, text.number(self._board.latest.get(key)), ""]
            table.add_row(*cells[: len(table.columns)])
        return table

    def _status(self) -> RenderableType:
        board = self._board
        if board.finished:
            return Text(board.phase, style="bold green", overflow="ellipsis", no_wrap=True)
        waited = int(board.now() - board.phase_since)
        self._spinner.update(text=Text(f"{board.phase}…" + (f" {waited} s" if waited else "")))
        return self._spinner

    def _seconds(self) -> Text:
        latest = self._board.latest
        parts = [f"{label} {text.seconds(latest[key])}" for key, label in _PHASES if key in latest]
        if "checkpoint/step" in latest:
            parts.append(f"checkpoint at {text.count(latest['checkpoint/step'])}")
        return Text(", ".join(parts), style="dim")
