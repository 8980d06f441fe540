"""Trains in processes of their own, ends them in the middle, and compares what comes of it in the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etils import epath

from jaxrl.runs.checkpoint import checkpoint_folder
from jaxrl.runs.checkpoint.checkpoint_record import Record
from tests import processes

ROOT = processes.ROOT
CONFIG = "tests/faults/tiny.py"
PATIENCE = 120.0  # seconds until something that must happen counts as hanging
GRACE = 10.0  # seconds that a signal may take; a spot machine is given 15 or 30
FINDINGS = pytest.StashKey[dict[str, dict[str, Any]]]()  # of test_campaign.py, by kind of fault
UNFINISHED = ".orbax-checkpoint-tmp"


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
      code: as a shell reports it, 128 + N for one that signal N has ended.
      seconds: since the last signal that was sent, or the start.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float


class Training:
    """A process that trains in a run's folder."""

    def __init__(self, run: Run, config: str, options: tuple[str, ...], env: dict[str, str]) -> None:
        self._run = run
        arguments = ["-m", "jaxrl.main", f"--config={config}", f"--workdir={run.folder}", *options]
        # Files, and not in the folder: a pipe would have to be read, and the folder may be lost.
        self._logs = [run.notes / f"{run.starts}.{name}" for name in ("stdout", "stderr")]
        with self._logs[0].open("w") as out, self._logs[1].open("w") as err:
            self.process = processes.start(*arguments, env=env, stdout=out, stderr=err)
        self._since = time.monotonic()
        self._started = time.time()

    def said(self) -> str:
        """The text that it has printed so far."""
        return "".join(log.read_text() for log in self._logs)

    def send(self, signum: int) -> None:
        self._since = time.monotonic()
        self.process.send_signal(signum)

    def ended(self, timeout: float = PATIENCE) -> Outcome:
        """Waits for its end."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"it did not end within {timeout} s:\n{self.said()}")
        seconds = time.monotonic() - self._since
        return Outcome(code if code >= 0 else 128 - code, *(log.read_text() for log in self._logs), seconds)

    def kill(self) -> Outcome:
        """As a machine does that is switched off."""
        self.send(signal.SIGKILL)
        return self.ended()

    def comes_to(self, condition: Callable[[], Any], look_every: float = 0.02) -> bool:
        """Waits until `condition()` holds; returns False where the process ends before.

        Looking takes time from the training on a machine of few cores: `look_every` is in seconds.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"what was waited for did not come in {PATIENCE} s:\n{self.said()}")
            time.sleep(look_every)
        return True

    def wait_until(self, condition: Callable[[], Any]) -> None:
        """Waits until `condition()` holds, which it must before the process ends."""
        if not self.comes_to(condition):
            pytest.fail(f"it ended before:\n{self.said()}")

    def wait_until_it_says(self, text: str) -> None:
        self.wait_until(lambda: text in self.said())

    def is_training(self) -> bool:
        """True if it has begun."""
        return "\ntraining\n" in self.said()

    def is_saving(self) -> bool:
        """True if it is writing a checkpoint at this moment."""
        # Not what an earlier kill has left; a little room, as file systems read a coarser clock.
        return any(t > self._started + 0.05 for t in self._run.unfinished().values())

    def pause_in_mid_save(self) -> bool:
        """Stops it where a checkpoint is half written; `resume` or `kill` it. False where it ends before."""
        while self.comes_to(self.is_saving, look_every=0.001):
            self.pause()
            if self.is_saving():
                return True
            self.resume()
        return False

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Run:
    """A run's folder, in which one process after the other trains.

    Attributes:
      folder: of the run.
      notes: the folder beside it for what processes print.
      starts: how many there have been.
    """

    def __init__(
        self,
        folder: Path | epath.Path,
        *options: str,
        config: str = CONFIG,
        notes: Path | None = None,
    ) -> None:
        """Names it.

        Args:
          folder: made by the first process.
          options: overrides of the configuration, for every process.
          config: file.
          notes: for what processes print; None takes a folder beside it.
        """
        self.folder = folder
        self.notes = notes or Path(folder).with_name(f"{folder.name}.notes")
        self.notes.mkdir(parents=True)
        self.starts = 0
        self._trainings: list[Training] = []
        self._options = options
        self._config = config

    def start(self, *options: str, cached: bool = True, optimized: bool = False) -> Training:
        """Starts training.

        Args:
          options: more overrides, for this process.
          cached: whether compiled programs are kept and reused.
          optimized: whether XLA optimises as for users; other tests do without, to compile faster.
        """
        env = dict(os.environ)
        if not cached:
            env["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        if optimized:
            env.pop("XLA_FLAGS", None)
        self.starts += 1
        self._trainings.append(Training(self, self._config, (*self._options, *options), env))
        return self._trainings[-1]

    def end(self) -> None:
        """Kills what still trains there, as after a test that has failed."""
        for training in self._trainings:
            training.process.kill()
            training.process.wait()

    def train(self, *options: str) -> Outcome:
        """Trains until it ends."""
        return self.start(*options).ended()

    def unfinished(self) -> dict[str, float]:
        """Folders of saves that are going on or were cut off, and when they changed last."""
        found = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # They come and go.
            for entry in os.scandir(self.folder / "checkpoints"):
                if UNFINISHED in entry.name:
                    found[entry.name] = entry.stat().st_mtime
        return found

    @property
    def checkpoints(self) -> dict[int, epath.Path]:
        """Complete ones, by step."""
        return dict(checkpoint_folder.find(epath.Path(self.folder / "checkpoints")).steps)

    def has_checkpoints(self, count: int) -> bool:
        return len(self.checkpoints) >= count

    def newest(self) -> int:
        """Its newest checkpoint's step."""
        return max(self.checkpoints)

    def damages(self) -> list[str]:
        """The damages of its checkpoints."""
        return [problem for path in self.checkpoints.values() if (problem := checkpoint_folder.damage(path))]

    def lines(self) -> list[str]:
        """Of metrics.jsonl, each with its end."""
        file = self.folder / "metrics.jsonl"
        return file.read_text().splitlines(keepends=True) if file.exists() else []

    def rows(self) -> list[dict[str, Any]]:
        """The logged metrics, but for those of clock, machine and checkpoints, which kills may change.

        A last row that a kill has torn is left out.
        """
        rows = [json.loads(line) for line in self.lines() if line.endswith("\n")]
        return [
            {name: x for name, x in row.items() if not name.startswith(("time", "host/", "device/"))}
            for row in rows
            if "checkpoint/step" not in row
        ]

    def final(self) -> tuple[Record, dict[str, np.ndarray]]:
        """The newest checkpoint, verified."""
        path = self.checkpoints[self.newest()]
        record = checkpoint_folder.read_record(path)
        return record, checkpoint_folder.read_arrays(path, record)


def spoil(checkpoint: epath.Path) -> None:
    """Changes one bit in the middle of the largest file of its arrays."""
    file = max((checkpoint / "state" / "d").iterdir(), key=lambda file: file.stat().length)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def differences(run: Run, straight: Run) -> list[str]:
    """Where a run that was ended and resumed is not, bit for bit, the one that was not; none is good."""
    return [*different_states(run, straight), *_different_rows(run.rows(), straight.rows())]


def different_states(run: Run, straight: Run) -> list[str]:
    """The same of the final states alone."""
    (record, arrays), (expected, others) = run.final(), straight.final()
    found = [] if record.step == expected.step else [f"step {record.step}, not {expected.step}"]
    for name in ("iteration", "interval", "evaluation", "evaluated_at"):
        if record.meta[name] != expected.meta[name]:
            found.append(f"{name}: {record.meta[name]}, not {expected.meta[name]}")
    if record.memory != expected.memory:
        found.append("the memory differs")
    found += [f"{name} is on one side only" for name in arrays.keys() ^ others.keys()]
    for name in sorted(arrays.keys() & others.keys()):
        x, y = arrays[name], others[name]
        if (x.dtype, x.shape, x.tobytes()) != (y.dtype, y.shape, y.tobytes()):
            found.append(f"{name} differs")
    return found


def _different_rows(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> Iterator[str]:
    if len(rows) != len(expected):
        steps, others = ([row["step"] for row in side] for side in (rows, expected))
        yield f"rows of the steps {steps}, not {others}"
        return
    for row, other in zip(rows, expected, strict=True):
        if row != other:
            yield f"the row of step {row['step']}: {row}, not {other}"
