"""The live view on a terminal, redrawn until a key or a signal ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.live import Live

from jaxrl.diagnostics.live.machine import Machine
from jaxrl.diagnostics.live.screen import LiveScreen
from jaxrl.diagnostics.live.watcher import Watcher

_REFRESH_SECONDS = 0.25


def display(watcher: Watcher, interval: float) -> None:
    """Redraws until q, Ctrl-C or SIGTERM, then restores the terminal."""
    machine = Machine()
    over = threading.Event()

    def keep_looking() -> None:
        while not over.wait(interval):
            watcher.look()

    # Reading from a bucket takes a while; keys must not wait for it.
    threading.Thread(target=keep_looking, daemon=True).start()
    with (
        contextlib.suppress(KeyboardInterrupt),
        _end_by_signal(),
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


@contextlib.contextmanager
def _end_by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP end the display as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
