"""Execution of runs that others have planned: the interface that their loops need, and child processes."""

from __future__ import annotations

import abc
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jaxrl.config import Config
from jaxrl.config.errors import RunError
from jaxrl.config.listing import config_file
from jaxrl.runs import child_process
from jaxrl.runs.child_ending import Stopping, child_environment, reason
from jaxrl.runs.device_share import DeviceShare, shares_of
from jaxrl.runs.signals import Interruption

_KILL_AFTER_TIMEOUT = 10.0  # that a run may take whose checkpoint nobody will use
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_LITTLE = 1 << 20  # bytes of a disk on which not even the reason may have been written
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class PlannedRun:
    """A run to execute: its name among all runs, its configuration, and its run folder."""

    name: str
    config: Config
    folder: Path


@dataclass(frozen=True)
class Ending:
    """The end of a run; `reason` is "" if it reached its end, else one line."""

    name: str
    reason: str


class Executor(abc.ABC):
    """Executes runs; a run that is started again in its folder resumes from its last checkpoint."""

    @abc.abstractmethod
    def room(self) -> int:
        """The number of further runs that it takes now."""

    @abc.abstractmethod
    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        """Starts runs, at most `room()` of them.

        Returns:
          The names of those that were started; the folders of the others are locked by other processes.
        """

    @abc.abstractmethod
    def poll(self) -> list[Ending]:
        """The runs that have ended since the last call."""

    @abc.abstractmethod
    def stop(self, name: str) -> None:
        """Asks a run to save and end; `poll` returns its end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets all runs save and end, and waits for them."""


def print_nothing(line: str) -> None:
    """Says nothing."""


@dataclass
class _Child:
    run: PlannedRun
    process: subprocess.Popen[bytes]
    slot: int
    lock: BinaryIO
    began: float = field(default_factory=time.monotonic)
    stopping: Stopping | None = None
    timed_out: bool = False


class ProcessExecutor(Executor):
    """Executes each run in a process of `python -m jaxrl.main`, whose failure does not affect the search.

    The process inherits the lock of its run, which is free once both search and run have ended.
    """

    def __init__(
        self,
        jobs: int,
        gpus: Sequence[str] = (),
        timeout: float | None = None,
        say: Callable[[str], object] = print_nothing,
        shares: Sequence[DeviceShare] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Takes options.

        Args:
          jobs: the number of runs at the same time.
          gpus: the GPUs that they share in turn.
          timeout: seconds after which a run is stopped, as one that failed; None: never.
          say: is called with a line about a run that does not end when asked to.
          shares: the part of the machine that each of the runs at the same time gets; (): an even part.
          flags: of `jaxrl train`, that each is given beside its configuration and its folder.
        """
        self._jobs = jobs
        self._flags = tuple(flags)
        self._shares = tuple(shares) or shares_of(jobs, gpus)
        self._timeout = timeout
        self._say = say
        self._children: dict[str, _Child] = {}

    def room(self) -> int:
        return self._jobs - len(self._children)

    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        return [run.name for run in runs if self._start(run)]

    def _start(self, run: PlannedRun) -> bool:
        lock = take_lock(run)
        if lock is None:
            return False
        file = run.folder.with_suffix(".py")
        file.write_text(config_file(run.config) + "\n")
        slot = min(set(range(self._jobs)) - {child.slot for child in self._children.values()})
        command = child_process.command(
            "jaxrl.main", f"--config={file}", f"--workdir={run.folder}", *self._flags
        )
        with run.folder.with_suffix(".log").open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environment() | self._shares[slot].environment(),
                pass_fds=(lock.fileno(),),
                start_new_session=True,  # Ctrl-C is for the search, which then asks its runs to save.
            )
        self._shares[slot].bind(process.pid)
        self._children[run.name] = _Child(run, process, slot, lock)
        return True

    def poll(self) -> list[Ending]:
        endings = []
        for name, child in list(self._children.items()):
            if child.process.poll() is None:
                self._watch(child)
                continue
            del self._children[name]
            child.lock.close()
            why = reason(child.process.returncode, child.run.folder.with_suffix(".log"))
            if why and child.timed_out:
                why = f"it was stopped after {self._timeout:g} seconds (--trial_timeout)"
            endings.append(Ending(name, why))
        return endings

    def _watch(self, child: _Child) -> None:
        """Stops a run that takes too long, and one that does not stop."""
        if child.stopping is not None:
            child.stopping.watch(self._say)
        elif self._timeout is not None and time.monotonic() - child.began > self._timeout:
            child.timed_out = True
            child.stopping = Stopping(child.process, f"trial {child.run.name}", _KILL_AFTER_TIMEOUT)

    def stop(self, name: str) -> None:
        child = self._children[name]
        if child.stopping is None:
            child.stopping = Stopping(child.process, f"trial {name}")

    def close(self) -> None:
        for name in self._children:
            self.stop(name)
        while self._children:
            self.poll()
            time.sleep(0.05)


def usable_cores() -> list[int]:
    """The numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them, without starting JAX."""
    if os.environ.get("JAX_PLATFORMS", "").strip() == "cpu":
        return []
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    return [str(index) for index in range(count)]


def take_lock(run: PlannedRun) -> BinaryIO | None:
    """Locks a run; the process that trains it inherits the lock. None if another process has it."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = run.folder.with_suffix(".lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def ran_out_of_disk(ending: Ending, folder: Path) -> bool:
    """True if a run failed because the disk of `folder` was full, so that it may continue later."""
    if not ending.reason:
        return False
    named = any(words in ending.reason for words in _DISK_FULL)
    return named or shutil.disk_usage(folder).free < _LITTLE


def run_all(runs: Sequence[PlannedRun], executor: Executor, interruption: Interruption) -> dict[str, str]:
    """Executes runs to the end; returns the reason of each failure by name, "" for success.

    Raises:
      RunError: another process has one of them.
    """
    waiting = list(runs)
    reasons = dict[str, str]()
    while waiting or len(reasons) < len(runs):
        for ending in executor.poll():
            reasons[ending.name] = ending.reason
        while waiting and executor.room():
            run = waiting.pop(0)
            if not executor.start([run]):
                raise RunError(f"{run.folder} is in use by another process: wait for that and run this again")
        if interruption.signum is not None:
            executor.close()
            break
        time.sleep(_POLL_SECONDS)
    return reasons
