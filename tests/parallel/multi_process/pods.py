"""Runs `launch/local_pod.sh` and looks at its processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etils import epath

from jaxrl.runs.checkpoint import checkpoint_folder

ROOT = Path(__file__).parents[3]
PATIENCE = 150.0
CONFIG = "tests/parallel/multi_process/tiny.py"


class Pod:
    """One run of the script, in a process group of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._output = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.txt")
        env = os.environ | {"PYTHON": sys.executable}
        command = ["launch/local_pod.sh", *arguments, f"--config={CONFIG}", f"--workdir={folder}"]
        with self._output.open("w") as stream:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def starts(self) -> list[list[int]]:
        """The process ids of each start of the training."""
        found = re.findall(r"^local_pod: processes ([\d ]+) meet", self.output, re.MULTILINE)
        return [[int(pid) for pid in pids.split()] for pids in found]

    def wait_until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                pytest.fail(f"it ended before:\n{self.output}")
            if time.monotonic() > deadline:
                pytest.fail(f"what was waited for did not come:\n{self.output}")
            time.sleep(0.02)

    def ended(self, timeout: float = PATIENCE) -> int:
        """Waits for its end; returns the exit code, and fails where a process is left."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end:\n{self.output}")
        assert not [pid for pids in self.starts for pid in pids if is_running(pid)], "processes are left"
        return code

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def pod(folder: Path, *arguments: str) -> Iterator[Pod]:
    started = Pod(folder, *arguments)
    try:
        yield started
    finally:
        started.end()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def steps(folder: Path) -> list[int]:
    """Of complete checkpoints."""
    return list(checkpoint_folder.find(epath.Path(folder / "checkpoints")).steps)


def state(folder: Path, step: int) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, verified."""
    path = epath.Path(folder / "checkpoints" / str(step))
    return checkpoint_folder.read_arrays(path, checkpoint_folder.read_record(path))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
