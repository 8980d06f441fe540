"""Planned runs: the names that they will have, and their execution, in child processes or otherwise."""

from __future__ import annotations

import abc
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from jaxrl.config import Config, to_json
from jaxrl.config.environment import import_path, last_line
from jaxrl.config.errors import RunError
from jaxrl.config.listing import config_file
from jaxrl.runs.child_process import (
    POLL_SECONDS,
    ChildProcess,
    DeviceShare,
    print_nothing,
    shares_of,
    take_lock,
)
from jaxrl.runs.signals import Interruption

# The sections that decide the spaces and the network.
_SECTIONS = ("env", "network", "host", "evaluate", "normalize", "algorithm")
_KILL_AFTER_TIMEOUT = 10.0  # that a run may take whose checkpoint nobody will use
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_LITTLE = 1 << 20  # bytes of a disk on which not even the reason may have been written


@dataclass(frozen=True)
class RunNames:
    """Names of some runs, from a process before any of them starts: JAX's devices belong to the runs.

    Attributes:
      metrics: of what they write, without names that begin as in `open`.
      open: beginnings of metrics that are known only once a run writes them.
      numbers: the numeric hyperparameters of the first, as fields such as "ppo.learning_rate", without
        fields that are None there. Runs that differ in nothing else can be one program.
    """

    metrics: tuple[str, ...]
    open: tuple[str, ...]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, configs: Iterable[Config]) -> RunNames:
        """Asks for the names; ConfigError if one of the configurations leads to no environment or network."""
        distinct: dict[str, dict[str, Any]] = {}
        for config in configs:
            data = to_json(config)
            distinct.setdefault(json.dumps({name: data[name] for name in _SECTIONS}), data)
        asked = json.dumps(list(distinct.values()))
        said = last_line(["-m", "jaxrl.evaluation.run_names"], import_path(), asked)
        return cls(**{name: tuple(names) for name, names in json.loads(said).items()})


@dataclass(frozen=True)
class PlannedRun:
    """A run to execute: its name among all runs, its configuration, and its run folder."""

    name: str
    config: Config
    folder: Path

    def take_lock(self) -> BinaryIO | None:
        """Locks the run; the process that trains it inherits the lock. None if another process has it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return take_lock(self.folder.with_suffix(".lock"))

    def start(
        self, lock: BinaryIO, share: DeviceShare, say: Callable[[str], object], *flags: str
    ) -> ChildProcess:
        """Starts `jaxrl train` with its configuration, its folder and `flags`, once it is locked."""
        file = self.folder.with_suffix(".py")
        file.write_text(config_file(self.config) + "\n")
        given = (f"--config={file}", f"--workdir={self.folder}", *flags)
        log = self.folder.with_suffix(".log")
        return ChildProcess(
            f"trial {self.name}", "jaxrl.main", *given, log=log, locks=(lock,), share=share, say=say
        )


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
        """Starts runs, at most `room()`; returns their names, without those that others have locked."""

    @abc.abstractmethod
    def poll(self) -> list[Ending]:
        """The runs that have ended since the last call."""

    @abc.abstractmethod
    def stop(self, name: str) -> None:
        """Asks a run to save and end; `poll` returns its end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets all runs save and end, and waits for them."""


@dataclass
class _Running:
    child: ChildProcess
    slot: int
    lock: BinaryIO
    began: float = field(default_factory=time.monotonic)
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
    ) -> None:
        """`jobs` runs at a time share the GPUs round-robin; one fails that takes more than `timeout` seconds.

        `say` gets a line about a run that does not end on request.
        """
        self._jobs = jobs
        self._shares = shares_of(jobs, gpus)
        self._timeout = timeout
        self._say = say
        self._running: dict[str, _Running] = {}

    def room(self) -> int:
        return self._jobs - len(self._running)

    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        started = [(run, lock) for run in runs if (lock := run.take_lock()) is not None]
        for run, lock in started:
            slot = min(set(range(self._jobs)) - {running.slot for running in self._running.values()})
            child = run.start(lock, self._shares[slot], self._say)
            self._running[run.name] = _Running(child, slot, lock)
        return [run.name for run, _ in started]

    def poll(self) -> list[Ending]:
        endings = []
        for name, running in list(self._running.items()):
            why = running.child.poll()
            if why is None:
                late = self._timeout is not None and time.monotonic() - running.began > self._timeout
                if late and not running.child.is_stopping:
                    running.timed_out = True
                    running.child.stop(_KILL_AFTER_TIMEOUT)
                continue
            del self._running[name]
            running.lock.close()
            if why and running.timed_out:
                why = f"it was stopped after {self._timeout:g} seconds (--trial_timeout)"
            endings.append(Ending(name, why))
        return endings

    def stop(self, name: str) -> None:
        self._running[name].child.stop()

    def close(self) -> None:
        for name in self._running:
            self.stop(name)
        while self._running:
            self.poll()
            time.sleep(POLL_SECONDS)


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
        time.sleep(POLL_SECONDS)
    return reasons
