"""A process that stands still is ended, one that works or compiles is not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_PROCESS = """
import sys, time
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.process_exit import watch_progress

clock = Clock()
with watch_progress(clock.idle, 0.4):
    with clock.measure("compile"):
        time.sleep(0.6)
    for _ in range(5):
        with clock.measure("train"):
            time.sleep(0.1)
    print("worked", flush=True)
    if sys.argv[1] == "stuck":
        with clock.measure("train"):
            time.sleep(60)
time.sleep(0.6)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """One that gets stuck and one that does not, beside each other: they sleep most of the time."""
    pipe = subprocess.PIPE
    started = {
        how: subprocess.Popen(
            [sys.executable, "-c", _PROCESS, how], cwd=ROOT, stdout=pipe, stderr=pipe, text=True
        )
        for how in ("stuck", "fine")
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def test_a_stuck_process_ends_with_a_message(processes: dict[str, subprocess.Popen[str]]) -> None:
    begun = time.monotonic()
    output, error = processes["stuck"].communicate(timeout=60)
    assert (processes["stuck"].returncode, output) == (75, "worked\n")
    assert error.startswith("error: no progress in the phase `train` for ")
    assert "(--watchdog=0.4)" in error
    assert len(error.splitlines()) == 1
    assert time.monotonic() - begun < 30


def test_work_compilation_and_the_time_after_are_left_alone(
    processes: dict[str, subprocess.Popen[str]],
) -> None:
    output, error = processes["fine"].communicate(timeout=60)
    assert (processes["fine"].returncode, output, error) == (0, "worked\ndone\n", "")
