"""Several runs on a terminal: a panel each while they fit, else a line each; plain lines for a pipe."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import psutil
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jaxrl.config import text
from jaxrl.diagnostics.live_run import LiveRun, Watcher
from jaxrl.reporting.display.panel import RunPanel
from jaxrl.reporting.display.progress import CUT_OFF, EVALUATION, MODES, PACE, RETURN
from jaxrl.runs.signals import handled_by

_REFRESH_SECONDS = 0.25
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


def display(watcher: Watcher, interval: float) -> None:
    """Redraws until q, Ctrl-C or SIGTERM, then restores the terminal."""
    machine = _Machine()
    over = threading.Event()

    def keep_looking() -> None:
        while not over.wait(interval):
            watcher.look()

    # Reading from a bucket takes a while; keys must not wait for it.
    threading.Thread(target=keep_looking, daemon=True).start()
    with (
        contextlib.suppress(KeyboardInterrupt),
        handled_by(_end, signal.SIGTERM, signal.SIGHUP),
        _single_keys() as read_keys,
        Live(console=Console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(LiveScreen(watcher.runs, machine.describe()), refresh=True)
            if "q" in read_keys(_REFRESH_SECONDS).lower():
                break
    over.set()


@contextlib.contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits some seconds for keys, which need no Enter and are not shown."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read_keys(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        keys = os.read(terminal, 64) if ready else b""
        # The other end of the terminal has gone: nobody is watching.
        return "q" if ready and not keys else keys.decode(errors="replace")

    try:
        tty.setcbreak(terminal)
        yield read_keys
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    """A signal ends the view as Ctrl-C does, which puts the terminal back."""
    raise KeyboardInterrupt


class _Machine:
    """Cores, memory and NVIDIA GPUs (with the `monitor` extra)."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # The first call starts the interval that the next one reports.
        self._nvml: Any = None
        with contextlib.suppress(Exception):  # ImportError, or NVML's errors without a driver.
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml

    def describe(self) -> str:
        """One line; the CPU load is since the previous call."""
        memory = psutil.virtual_memory()
        parts = [
            f"cpu {psutil.cpu_percent():.0f}% of {psutil.cpu_count()} cores",
            f"memory {text.size(memory.total - memory.available)} of {text.size(memory.total)}",
        ]
        with contextlib.suppress(Exception):  # A driver that stops answering.
            parts += self._gpus()
        return ", ".join(parts)

    def _gpus(self) -> Iterator[str]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount() if nvml else 0):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield f"gpu {index} {busy}% {text.size(memory.used)} of {text.size(memory.total)}"


@dataclass(frozen=True)
class LiveScreen:
    """The runs, and a line on the machine; drawn at every refresh by rich."""

    runs: Sequence[LiveRun]
    machine: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _MAX_WIDTH)
        footer = Text(f"{self.machine}   q quits", style="dim", no_wrap=True)
        footer.truncate(width, overflow="ellipsis")
        yield self._fit(console, options, width)
        yield footer

    def _fit(self, console: Console, options: ConsoleOptions, width: int) -> Group | Table | Text:
        """The most detailed form of the runs that fits on the screen."""
        if not self.runs:
            return Text("no runs yet", style="dim")
        height = options.height or console.height
        for compact in (False, True):
            panels = Group(*(_panel(run, compact) for run in self.runs))
            if len(console.render_lines(panels, options.update(height=None))) < height:
                return panels
        return _table(self.runs, width, height)


def plain(runs: Sequence[LiveRun]) -> Iterator[str]:
    """A line per run, without escape codes."""
    for run in runs:
        progress = run.progress
        latest = progress.latest
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
        yield ", ".join([*parts, *_notes(run), *([run.problem] if run.problem else [])])


def _panel(run: LiveRun, compact: bool) -> RunPanel:
    usage = _notes(run)
    if run.age is not None and not run.done:
        usage.append(f"last row {text.seconds(run.age)} ago")
    notes = [Text(", ".join(usage), style="dim")]
    if run.problem:
        notes.insert(0, Text(text.one_line(run.problem), style="red"))
    place = text.printable(run.path)
    return RunPanel(run.progress, compact=compact, state=_state(run), place=place, notes=notes)


def _table(runs: Sequence[LiveRun], width: int, height: int) -> Table:
    """As many runs as fit; training ones come first."""
    wide = width >= _WIDE
    clocks = {run.progress.clock for run in runs}
    pace = f"{clocks.pop()}/s" if len(clocks) == 1 else "per second"
    # In the mode that decides and, if a run plays in both, in each.
    both = any(len(run.progress.evaluations) > 1 for run in runs)
    evaluations = ((EVALUATION, "eval"), *(MODES if both else ()))
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


def _cells(run: LiveRun, evaluations: Sequence[tuple[str, str]], wide: bool) -> list[str | Text]:
    progress = run.progress
    latest = progress.latest
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
    same = itertools.takewhile(lambda level: len(set(level)) == 1, levels)
    return "".join(f"{level[0]}/" for level in same)


def _crop(name: str, room: int) -> str:
    """A name without its middle if that is longer than `room`: runs differ at the ends of their names."""
    if len(name) <= room or room < 5:
        return name
    end = (room - 1) * 2 // 3
    return f"{name[: room - 1 - end]}…{name[-end:]}"


def _state(run: LiveRun) -> Text:
    phase = run.progress.phase
    return Text(phase, style=_STYLES.get(phase.partition(":")[0], "yellow"))


def _notes(run: LiveRun) -> list[str]:
    """Episodes that were cut off, and the load of the machine."""
    count = run.progress.latest.get(CUT_OFF)
    notes = [f"{count:.0f} evaluated episodes were cut off"] if count else []
    named = (("host", run.host), ("device", run.device))
    return notes + [f"{name} {shown}" for name, usage in named if (shown := text.load(*usage)) != "-"]
