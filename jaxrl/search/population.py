"""Trials as members of a population: those that differ in numbers alone are one program."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jaxrl.config import to_json
from jaxrl.config.data_files import read_object
from jaxrl.runs import child_process
from jaxrl.runs.child_ending import Stopping, child_environment, reason
from jaxrl.runs.executor import Ending, Executor, PlannedRun, print_nothing, take_lock


@dataclass
class _Generation:
    """Runs that one process trains, and the locks that it holds for them."""

    runs: list[PlannedRun]
    locks: list[BinaryIO]
    process: subprocess.Popen[bytes]
    stopping: Stopping | None = None

    @property
    def file(self) -> Path:
        """The description of the runs for the process, beside the folder of its first run."""
        return _file(self.runs)


class PopulationExecutor(Executor):
    """Trains several runs at once in one process, each `program_shape` among them as one program.

    The next runs start when all have ended. None is stopped early: they are one program.
    """

    def __init__(
        self,
        size: int,
        exchange: Mapping[str, Any] | None = None,
        say: Callable[[str], object] = print_nothing,
    ) -> None:
        """Takes options.

        Args:
          size: the number of runs trained together.
          exchange: between them (`pbt.exchange_of`).
          say: is called with a line about a process that does not end when asked to.
        """
        self._size = size
        self._say = say
        self._exchange = exchange
        self._waiting: list[tuple[PlannedRun, BinaryIO]] = []
        self._generation: _Generation | None = None

    def room(self) -> int:
        return 0 if self._generation else self._size - len(self._waiting)

    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        locked = [(run, lock) for run in runs if (lock := take_lock(run)) is not None]
        self._waiting += locked
        return [run.name for run, _ in locked]

    def poll(self) -> list[Ending]:
        if self._generation is None:
            if self._waiting:
                self._begin()
            return []
        if self._generation.process.poll() is None:
            if self._generation.stopping is not None:
                self._generation.stopping.watch(self._say)
            return []
        return self._end(self._generation)

    def _begin(self) -> None:
        """Starts the process of the runs that wait."""
        runs = [run for run, _ in self._waiting]
        locks = [lock for _, lock in self._waiting]
        self._waiting = []
        file = _file(runs)
        described = [{"name": r.name, "config": to_json(r.config), "folder": str(r.folder)} for r in runs]
        file.write_text(json.dumps({"runs": described, "exchange": self._exchange}))
        with file.with_suffix(".log").open("wb") as output:
            process = subprocess.Popen(
                child_process.command("jaxrl.population.generation", str(file)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                pass_fds=[lock.fileno() for lock in locks],
                start_new_session=True,
            )
        self._generation = _Generation(runs, locks, process)

    def _end(self, generation: _Generation) -> list[Ending]:
        self._generation = None
        for lock in generation.locks:
            lock.close()
        log = generation.file.with_suffix(".log")
        results = generation.file.with_suffix(".results.json")
        reasons = read_object(results) if results.exists() else {}
        common = reason(generation.process.returncode, log) or "its process ended before it"
        for file in (generation.file, results):
            file.unlink(missing_ok=True)
        return [Ending(run.name, reasons.get(run.name, common)) for run in generation.runs]

    def stop(self, name: str) -> None:
        """Nothing to do: a member continues with the others."""

    def close(self) -> None:
        for _, lock in self._waiting:
            lock.close()
        self._waiting = []
        while self._generation is not None:
            if self._generation.stopping is None:
                names = ", ".join(run.name for run in self._generation.runs)
                self._generation.stopping = Stopping(
                    self._generation.process, f"the process of trials {names}"
                )
            self.poll()
            time.sleep(0.05)


def _file(runs: Sequence[PlannedRun]) -> Path:
    return runs[0].folder.with_suffix(".population.json")
