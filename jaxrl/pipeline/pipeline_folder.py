"""The folder of a pipeline and its record, state.json: which stage is done, from which inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from jaxrl.config import ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.config.local_files import replace_text
from jaxrl.pipeline.gates import GateOutcome
from jaxrl.runs.child_process import POLL_SECONDS, take_lock

DONE = "done"
RUNNING = "running"
FAILED = "failed"
INTERRUPTED = "interrupted"
_STATES = (DONE, RUNNING, FAILED, INTERRUPTED)
EARLIER = "earlier"  # the folder for stages that were made again
_LOCK_SECONDS = 180.0  # that a command of a killed pipeline may take to save
_STAMP = re.compile(r"\d{8}-\d{6}")
_LONGEST = 60  # characters of a value in a reason

Inputs = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """A command that was carried out: its words and how many seconds it took."""

    words: tuple[str, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """The record of a stage.

    Attributes:
      state: "done", "running", "failed" or "interrupted".
      inputs: all that it was made from: settings, files, outputs of other stages and versions, each by name.
      steps: commands that are done.
      outputs: digests of what it made, by name.
      seconds: that its commands took.
      problem: why it failed, or "".
    """

    state: str
    inputs: Inputs
    steps: tuple[StepRecord, ...] = ()
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""

    @classmethod
    def of_json(cls, data: Any) -> StageRecord:
        """Raises ValueError, TypeError or KeyError if `data` is none."""
        if data["state"] not in _STATES:
            raise ValueError(data["state"])
        steps = tuple(StepRecord(tuple(map(str, s["words"])), float(s["seconds"])) for s in data["steps"])
        inputs = {str(name): dict(part) for name, part in dict(data["inputs"]).items()}
        outputs = {str(name): str(x) for name, x in dict(data["outputs"]).items()}
        return cls(data["state"], inputs, steps, outputs, float(data["seconds"]), str(data["problem"]))


def difference(before: Inputs, now: Inputs) -> str:
    """The first difference between two stages' inputs, in words; "" if there is none."""
    for part in now:
        old = before.get(part, {})
        new = now[part]
        for name in sorted({*old, *new}, key=str):
            if old.get(name) == new.get(name):
                continue
            if part == "settings":
                return f"{name} is {_text_of(new.get(name))}, was {_text_of(old.get(name))}"
            if part == "versions":
                return f"{name} {new.get(name)} is installed, was {old.get(name)}"
            return f"the file of {name} has changed" if part == "files" else f"{name} has changed"
    return ""


def _text_of(value: Any) -> str:
    said = "not set" if value is None else str(value) or "empty"
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


class PipelineFolder:
    """`NAME_TIMESTAMP/`: pipeline.yaml, state.json, NAME.log, and a folder for each stage."""

    def __init__(self, path: str, name: str) -> None:
        """Reads state.json, if there is one; creates nothing; ConfigError if it holds another pipeline."""
        self.path = path
        self.name = name
        self.root = Path(path)
        self.records, self.gates = self._read()

    def _read(self) -> tuple[dict[str, StageRecord], dict[str, GateOutcome]]:
        file = self.root / "state.json"
        try:
            data = read_object(file)
        except FileNotFoundError:
            return {}, {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read: {error}; remove it to start over") from error
        if data.get("pipeline") != self.name:
            text_ = f"holds the pipeline {data.get('pipeline')!r}, not {self.name!r}: name another folder"
            raise ConfigError(f"`--workdir` (={self.path!r}) {text_}")
        try:
            records = {stage: StageRecord.of_json(record) for stage, record in dict(data["stages"]).items()}
            gates = {
                str(condition): GateOutcome(str(condition), str(found["value"]), bool(found["passed"]))
                for condition, found in dict(data.get("gates", {})).items()
            }
            return records, gates
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} is damaged ({error!r}); remove it to start over") from error

    def create(self, definition: str) -> None:
        """Creates the folder, and writes pipeline.yaml into it; raises ConfigError if it cannot."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            replace_text(self.root / "pipeline.yaml", definition)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error

    def put(self, stage: str, record: StageRecord) -> None:
        """Records a stage, completely or not at all."""
        self.records[stage] = record
        self._write()

    def put_gates(self, found: Iterable[GateOutcome]) -> None:
        """Records the outcome of gates."""
        self.gates |= {gate.condition: gate for gate in found}
        self._write()

    def _write(self) -> None:
        stages = {name: dataclasses.asdict(found) for name, found in self.records.items()}
        gates = {name: dataclasses.asdict(found) for name, found in self.gates.items()}
        content = {"pipeline": self.name, "stages": stages, "gates": gates}
        replace_text(self.root / "state.json", json.dumps(content, indent=2) + "\n")

    def stage(self, name: str) -> Path:
        return self.root / name

    def log(self, stage: str) -> Path:
        """The file with the output of a stage's commands."""
        return self.root / stage / f"{stage}.log"

    def set_aside(self, stage: str) -> None:
        """Moves what an earlier form of a stage made to earlier/STAGE-N."""
        place = self.stage(stage)
        if not place.exists():
            return
        (self.root / EARLIER).mkdir(exist_ok=True)
        free = (self.root / EARLIER / f"{stage}-{number}" for number in itertools.count(1))
        place.rename(next(path for path in free if not path.exists()))

    def clear(self, path: str) -> None:
        """Removes a folder in here that a command left unfinished."""
        place = Path(path)
        if self.root.resolve() in place.resolve().parents and place.exists():
            shutil.rmtree(place)

    @contextlib.contextmanager
    def lock(self, say: Callable[[str], None]) -> Iterator[BinaryIO]:
        """Locks the folder; commands inherit the lock, so that it is free once they have ended as well.

        Raises:
          ConfigError: another pipeline runs here, for longer than a command takes to save.
        """
        deadline = time.monotonic() + (_LOCK_SECONDS if self._was_killed() else 0.0)
        told = False
        while (lock := take_lock(self.root / ".lock")) is None:
            if time.monotonic() > deadline:
                raise ConfigError(f"{self.path} is in use by another pipeline: end that")
            if not told:
                told = True
                say("waiting for a command of the pipeline that was killed, which may be saving")
            time.sleep(POLL_SECONDS)
        with lock:
            replace_text(self.root / ".owner", f"{os.getpid()}\n")
            yield lock

    def _was_killed(self) -> bool:
        """True if the process that last ran here has ended."""
        try:
            os.kill(int((self.root / ".owner").read_text()), 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError):
            return False
        return False


def latest(output: str, name: str) -> str | None:
    """The newest folder of a pipeline in `output`; None without one."""
    root = Path(output)
    found = [path for path in root.glob(f"{name}_*") if _STAMP.fullmatch(path.name.removeprefix(f"{name}_"))]
    return str(max(found, key=lambda path: path.name)) if found else None


def new(output: str, name: str) -> str:
    """The path of a new folder."""
    return os.path.join(output, f"{name}_{datetime.datetime.now():%Y%m%d-%H%M%S}")


def expected_seconds(output: str, name: str, stage: str, folder: PipelineFolder) -> float | None:
    """The seconds of a stage here, or in the newest folder with it finished; None if none has."""
    if (record := folder.records.get(stage)) is not None and record.state == DONE:
        return record.seconds
    paths = sorted(Path(output).glob(f"{name}_*/state.json"), reverse=True)
    for path in paths:
        with contextlib.suppress(ConfigError):
            record = PipelineFolder(str(path.parent), name).records.get(stage)
            if record is not None and record.state == DONE:
                return record.seconds
    return None
