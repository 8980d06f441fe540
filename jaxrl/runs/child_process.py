"""A module run as a child process with its part of this machine: started, watched, made to save and end.

It does not outlive its parent, which it watches itself. Linux could send the signal (PR_SET_PDEATHSIG), but
sends one for each thread of the parent that dies, and the second signal ends a run that is still saving.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from jaxrl.config.environment import import_path

if TYPE_CHECKING:
    from jaxrl.runs.signals import Interruption

KILL_AFTER = 120.0  # seconds that a child may take to save
POLL_SECONDS = 0.1
_ANSWER_SECONDS = 5.0  # that a child may take to end before it is named
_PARENT_SECONDS = 0.5  # between two looks of a child at its parent
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "MemoryError", "out of memory", "Out of memory", "bad_alloc")
_LINE = 300  # characters of a reason
# The last line of a traceback, and what libraries print before they end a process.
_ERROR = re.compile(r"([A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b|[Ff]atal|terminate called|F\d{4} )")


def print_nothing(line: str) -> None:
    """Prints nothing."""


@dataclass(frozen=True)
class DeviceShare:
    """GPUs and cores for one process of several; of one alone all that there are.

    Attributes:
      gpus: as CUDA_VISIBLE_DEVICES names them; (): all.
      memory: the share of each GPU's memory that JAX takes at the start; None: its own choice.
      cores: (): all.
    """

    gpus: tuple[str, ...] = ()
    memory: float | None = None
    cores: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """Variables for a process; this one's variables on how much memory is taken stay."""
        found = {}
        if self.gpus:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        if self.memory is not None and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{self.memory:.2f}"
        return found

    def bind(self, pid: int) -> None:
        """Gives a process its cores: threads of one would wait for another's."""
        if self.cores:
            with contextlib.suppress(OSError):  # It may have ended.
                os.sched_setaffinity(pid, self.cores)


def shares_of(jobs: int, gpus: Sequence[str], gpus_each: int = 1) -> tuple[DeviceShare, ...]:
    """A share of the machine for each of `jobs` processes that run side by side, with `gpus_each` GPUs.

    They share those that are present round-robin if there are too few.
    """
    if jobs == 1:
        return (DeviceShare(),)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    each = len(cores) // jobs
    # JAX takes three quarters of a GPU otherwise, so that a second process finds no memory.
    memory = 0.9 / -(-jobs * gpus_each // len(gpus)) if gpus else None
    return tuple(
        DeviceShare(
            gpus=tuple(dict.fromkeys(gpus[(slot * gpus_each + i) % len(gpus)] for i in range(gpus_each)))
            if gpus
            else (),
            memory=memory,
            cores=tuple(cores[slot * each : (slot + 1) * each]),
        )
        for slot in range(jobs)
    )


class ChildProcess:
    """A child process, whose output goes to a file.

    It gets one request to save and end, is named if it takes long, and at last killed with all its processes.
    The locks that it inherits are free once both it and its parent have ended.
    """

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        log: Path,
        locks: Sequence[IO[Any]] = (),
        share: DeviceShare | None = None,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], object] = print_nothing,
        ask: Callable[[], object] | None = None,
    ) -> None:
        """Starts it.

        Args:
          name: of the child, in a line about it.
          module: run by `python -m`, with `arguments`.
          log: takes its output; what was in the file is gone.
          locks: open files that it inherits.
          share: the part of this machine that it gets; None: all.
          settings: more variables of its environment.
          say: is called with a line if it does not end on request.
          ask: makes it save and end; None: by SIGTERM.
        """
        share = share or DeviceShare()
        self._name = name
        self._log = log
        self._say = say
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command(module, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": import_path()} | share.environment() | dict(settings or {}),
                pass_fds=[lock.fileno() for lock in locks],
                start_new_session=True,  # Ctrl-C is for the parent, which then asks its children to save.
            )
        share.bind(self._process.pid)
        self._ask = ask or self._process.terminate
        self._asked: float | None = None
        self._patience = KILL_AFTER
        self._is_named = False

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def is_stopping(self) -> bool:
        """True once its end was requested."""
        return self._asked is not None

    def poll(self) -> str | None:
        """The reason why it ended early in one line, "" if it did not; None while it runs.

        To be called again and again: here a child whose end was requested is watched.
        """
        if (code := self.code) is not None:
            return reason(code, self._log)
        if self._asked is not None:
            waited = time.monotonic() - self._asked
            if waited > self._patience:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            elif waited > _ANSWER_SECONDS and not self._is_named:
                self._is_named = True
                left = f"{self._patience - waited:.0f} more seconds"
                self._say(f"{self._name} has not ended yet: it may be saving, and is killed after {left}")
        return None

    def stop(self, patience: float | None = None) -> None:
        """Makes it save and end, the first time; it is killed after `patience` seconds, by default 120."""
        if self._asked is None and self.code is None:
            self._asked = time.monotonic()
            self._patience = KILL_AFTER if patience is None else patience
            self._ask()

    def wait(self, interruption: Interruption, follow: Callable[[], object] | None = None) -> str:
        """Waits until it ends, which a signal requests; returns why it ended early, as `poll` does.

        `follow` is called several times a second; if it raises, the child ends before the error is passed on.
        """
        try:
            while (why := self.poll()) is None:
                if interruption.signum is not None:
                    self.stop()
                if follow is not None:
                    follow()
                time.sleep(POLL_SECONDS)
            return why
        finally:
            self.stop()
            while self.poll() is None:
                time.sleep(POLL_SECONDS)


def take_lock(file: Path) -> BinaryIO | None:
    """Locks a file, which children may inherit; None if another process has it."""
    lock = file.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as a child of this process."""
    return [sys.executable, "-m", "jaxrl.runs.child_process", str(os.getpid()), module, *arguments]


def reason(code: int, output: Path) -> str:
    """The reason why a process ended early, in one line; "" for success. `output` is a file."""
    if code == 0:
        return ""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = output.read_text(errors="replace").splitlines()
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


def _watch(parent: int) -> None:
    """Sends SIGTERM to this process, once, after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _, given, name, *rest = sys.argv
    threading.Thread(target=_watch, args=(int(given),), name="parent", daemon=True).start()
    sys.argv = [name, *rest]
    # The command that runs record: this wrapper, run by hand, would end at once, without its parent.
    sys.orig_argv = [sys.executable, "-m", name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
