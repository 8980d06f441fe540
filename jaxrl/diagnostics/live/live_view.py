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
from typing import Any, NoReturn

import psutil
from rich.console import Console
from rich.live import Live

from jaxrl.config import text
from jaxrl.diagnostics.live.live_run import Watcher
from jaxrl.diagnostics.live.screen import LiveScreen
from jaxrl.runs.signals import handled_by

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


class Machine:
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
