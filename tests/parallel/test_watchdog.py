"""A process that stands still is ended, one that works or compiles is not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PROCESS = """
import sys, time
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.watchdog import watch_progress

clock = Clock()
with watch_progress(clock.idle, 0.4):
    with clock.measure("compile"):
        time.sleep(0.8)
    for _ in range(8):
        with clock.measure("train"):
            time.sleep(0.1)
    print("worked", flush=True)
    if sys.argv[1] == "stuck":
        with clock.measure("train"):
            time.sleep(60)
time.sleep(0.6)
print("done", flush=True)
"""


def run(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROCESS, how], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_a_stuck_process_ends_with_a_message() -> None:
    begun = time.monotonic()
    stuck = run("stuck")
    assert (stuck.returncode, stuck.stdout) == (75, "worked\n")
    assert stuck.stderr.startswith("error: no progress in the phase `train` for ")
    assert "(--watchdog=0.4)" in stuck.stderr
    assert len(stuck.stderr.splitlines()) == 1
    assert time.monotonic() - begun < 30


def test_work_compilation_and_the_time_after_are_left_alone() -> None:
    fine = run("fine")
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "worked\ndone\n", "")
