"""Trials as members of a population: trials that differ in numbers alone are one program."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, to_json
from jaxrl.config.data_files import read_object
from jaxrl.runs.child_process import POLL_SECONDS, ChildProcess, print_nothing
from jaxrl.runs.executor import Ending, Executor, PlannedRun
from jaxrl.runs.members import Lineage
from jaxrl.search.space import Space
from jaxrl.search.trials import StudyTrial


@dataclass
class _Generation:
    """Runs that one process trains, the locks that it holds for them, and the file that describes them."""

    runs: list[PlannedRun]
    locks: list[BinaryIO]
    file: Path
    child: ChildProcess


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
        """`exchange` is of `exchange_of`; `say` gets a line about a process that does not end on request."""
        self._size = size
        self._say = say
        self._exchange = exchange
        self._waiting: list[tuple[PlannedRun, BinaryIO]] = []
        self._generation: _Generation | None = None

    def room(self) -> int:
        return 0 if self._generation else self._size - len(self._waiting)

    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        locked = [(run, lock) for run in runs if (lock := run.take_lock()) is not None]
        self._waiting += locked
        return [run.name for run, _ in locked]

    def poll(self) -> list[Ending]:
        if self._generation is None:
            if self._waiting:
                self._begin()
            return []
        why = self._generation.child.poll()
        return [] if why is None else self._end(self._generation, why)

    def _begin(self) -> None:
        """Starts the process of the runs that wait."""
        runs = [run for run, _ in self._waiting]
        locks = [lock for _, lock in self._waiting]
        self._waiting = []
        file = runs[0].folder.with_suffix(".population.json")
        described = [{"name": r.name, "config": to_json(r.config), "folder": str(r.folder)} for r in runs]
        file.write_text(json.dumps({"runs": described, "exchange": self._exchange}))
        child = ChildProcess(
            f"the process of trials {', '.join(run.name for run in runs)}",
            "jaxrl.population.generation",
            str(file),
            log=file.with_suffix(".log"),
            locks=locks,
            say=self._say,
        )
        self._generation = _Generation(runs, locks, file, child)

    def _end(self, generation: _Generation, why: str) -> list[Ending]:
        self._generation = None
        for lock in generation.locks:
            lock.close()
        results = generation.file.with_suffix(".results.json")
        reasons = read_object(results) if results.exists() else {}
        common = why or "its process ended before it"
        for file in (generation.file, results):
            file.unlink(missing_ok=True)
        return [Ending(run.name, reasons.get(run.name, common)) for run in generation.runs]

    def stop(self, name: str) -> None:
        """Does nothing: a member continues with the others."""

    def close(self) -> None:
        for _, lock in self._waiting:
            lock.close()
        self._waiting = []
        while self._generation is not None:
            self._generation.child.stop()
            self.poll()
            time.sleep(POLL_SECONDS)


def require_exchangeable(space: Space, known: Sequence[str]) -> None:
    """Raises ConfigError if the space varies anything but ranges of `known` numeric hyperparameters."""
    for dimension in space.dimensions:
        if dimension.name not in known:
            text = f"is no numeric hyperparameter; those are {', '.join(known)}"
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt changes values while it trains, and this {text}"
            )
        if dimension.form not in ("log", "uniform") or dimension.is_integer:
            integer = ", and the field no integer" if dimension.is_integer else ""
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt multiplies values, so it must be log or "
                f"uniform{integer}"
            )


def exchange_of(config: ConfigDict, space: Space, seed: int, folder: Path) -> dict[str, Any]:
    """The arguments of `jaxrl.population.exchange.Exchange`, as plain JSON values."""
    section = check_config(config).section
    ranges = {
        dimension.name.removeprefix(f"{section}."): [dimension.low, dimension.high, dimension.form == "log"]
        for dimension in space.dimensions
    }
    return {"ranges": ranges, "seed": seed, "lineage": Lineage.of(folder).path}


def with_last_values(trials: Sequence[StudyTrial], config: ConfigDict, folder: Path) -> list[StudyTrial]:
    """The trials with the values that their members had at the end, which may come from others.

    Trials that have had their values longest come first, as of equal scores the first is the best.
    """
    section = check_config(config).section
    latest = {copy["member"]: copy for copy in Lineage.of(folder).read()}
    found = []
    for trial in trials:
        copy = latest.get(str(trial.number), {"step": 0, "values": {}})
        values = {f"{section}.{name}": value for name, value in copy["values"].items()}
        found.append((copy["step"], dataclasses.replace(trial, values={**trial.values, **values})))
    return [trial for _, trial in sorted(found, key=lambda each: each[0])]
