"""jaxrl watch DIR [DIR...]: follows runs live on a terminal.

  DIR...         run folders, folders that hold some, or patterns; local or gs://
  --interval=S   seconds between looks (default: 1; 5 with gs://)
  --debug        full tracebacks instead of one line for bad input

Runs that begin meanwhile appear by themselves. q or Ctrl-C ends the display, never the runs. Where the output
is no terminal it prints a line per run, once. The load of NVIDIA GPUs needs the `monitor` extra.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.diagnostics.live.run import LiveRun
from jaxrl.metrics.files import is_remote
from jaxrl.runs import records

_REFRESH_SECONDS = 0.25


def main(argv: Sequence[str] | None = None) -> int:
    """Watches what `argv` names until a key ends it; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_float("interval", None, "Seconds.", lower_bound=0.1, flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    names = command_line.parse_flags(values, argv, positional=True)
    if not names:
        raise ConfigError("no folder is named: jaxrl watch DIR [DIR...]")
    for name in names:
        records.require_place(name)
    watcher = Watcher(names)
    watcher.look()
    interval = values["interval"].value or (5.0 if any(is_remote(name) for name in names) else 1.0)
    if sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        _display(watcher, float(interval))
        return 0
    from jaxrl.diagnostics.live import screen

    if not watcher.runs:
        raise ConfigError(f"`DIR` (={' '.join(names)!r}) holds no run yet: no config.json")
    for line in screen.plain(watcher.runs):
        print(line)
    return 0


class Watcher:
    """The runs in some places; `look` finds new ones and reads what is new in each."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._found: dict[str, LiveRun] = {}

    @property
    def runs(self) -> list[LiveRun]:
        return list(self._found.values())

    def look(self) -> None:
        for name in self._names:
            with contextlib.suppress(ConfigError, OSError):  # There is none yet, or the network is down.
                for path in records.find([name]):
                    if path not in self._found:
                        self._found[path] = LiveRun(path)
        for run in self._found.values():
            run.poll()


def _display(watcher: Watcher, interval: float) -> None:
    """Redraws until q, Ctrl-C or SIGTERM; the terminal is then as it was."""
    from rich.console import Console
    from rich.live import Live

    from jaxrl.diagnostics.live.machine import Machine
    from jaxrl.diagnostics.live.screen import LiveScreen

    machine, over = Machine(), threading.Event()

    def keep_looking() -> None:
        while not over.wait(interval):
            watcher.look()

    # Reading from afar takes a while; keys must not wait for it.
    threading.Thread(target=keep_looking, daemon=True).start()
    with (
        contextlib.suppress(KeyboardInterrupt),
        _ends_by_signal(),
        _single_keys() as pressed,
        Live(console=Console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(LiveScreen(watcher.runs, machine.describe()), refresh=True)
            if "q" in pressed(_REFRESH_SECONDS).lower():
                break
    over.set()


@contextlib.contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Gives what waits up to so many seconds for keys; they come without Enter and are not shown."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        keys = os.read(terminal, 64) if ready else b""
        # The other end of the terminal has gone: nobody watches any more.
        return "q" if ready and not keys else keys.decode(errors="replace")

    try:
        tty.setcbreak(terminal)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ends_by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP end the display as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
