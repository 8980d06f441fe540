"""The end of a child process: its environment, asking it to save and end, and the reason in one line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

KILL_AFTER = 120.0  # seconds that a run may take to save
_ANSWER_SECONDS = 5.0  # that a process may take to end before it is named
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "MemoryError", "out of memory", "Out of memory", "bad_alloc")
_LINE = 300  # characters of a reason
# The last line of a traceback, and what libraries print before they end a process.
_ERROR = re.compile(r"([A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b|[Ff]atal|terminate called|F\d{4} )")


@dataclass
class Stopping:
    """A process that was asked to save and end: it is named if it takes long, and killed at last."""

    process: subprocess.Popen[bytes]
    name: str
    patience: float = KILL_AFTER
    _asked: float = field(default_factory=time.monotonic)
    _is_named: bool = False

    def __post_init__(self) -> None:
        self.process.terminate()

    def watch(self, say: Callable[[str], object]) -> None:
        """To be called while the process runs."""
        waited = time.monotonic() - self._asked
        if waited > self.patience:
            self.process.kill()
        elif waited > _ANSWER_SECONDS and not self._is_named:
            self._is_named = True
            left = f"{self.patience - waited:.0f} more seconds"
            say(f"{self.name} has not ended yet: it may be saving, and is killed after {left}")


def child_environment() -> dict[str, str]:
    """The environment of a process that trains, which finds the same modules as this one."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def reason(code: int, output: Path) -> str:
    """The reason why a process ended early, in one line; "" for success. `output` is a file."""
    if code == 0:
        return ""
    lines = _read(output).splitlines()
    said = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
    memory = next((line for line in lines if any(sign in line for sign in _OUT_OF_MEMORY)), "")
    if memory and not said:
        said = f"out of memory: {memory.strip()}"
    if not said and code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        said = "killed by SIGKILL, as the system does where memory is short"
    if not said:
        # The last line may be of the display, such as what the run was about to do.
        error = next((line.strip() for line in reversed(lines) if _ERROR.match(line.strip())), "")
        said = f"{_describe_ending(code)}{error and f': {error}'}"
    return " ".join(said.split())[:_LINE]


def _describe_ending(code: int) -> str:
    """`killed by SIGSEGV` or `exit code 3`."""
    number = -code if code < 0 else code - 128
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"


def _read(output: Path) -> str:
    with contextlib.suppress(OSError):
        return output.read_text(errors="replace")
    return ""
