"""Signals and several processes on a disk that is full or read-only: answered within seconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks import ext4, fill
from tests.faults.harness import GRACE, Run, Training
from tests.parallel.multi_process import pods
from tests.parallel.multi_process.tiny import STEPS as POD_STEPS

FOR_EVER = "--config.stop.steps=1000000000"
TRACE = ("Traceback", "RuntimeWarning", "never awaited")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with ext4(tmp_path) as disk:
        yield disk


def start(disk: Path, *options: str) -> tuple[Run, Training]:
    run = Run(disk / "run", notes=disk.with_name("notes"))
    training = run.start(*options)
    training.wait_until(lambda: len(run.checkpoints) >= 2)
    return run, training


@pytest.mark.slow
def test_a_signal_is_answered_in_time_on_a_full_disk(disk: Path) -> None:
    run, training = start(disk, FOR_EVER)
    fill(disk / "ballast")
    training.wait_until(lambda: training.said().count("could not be written") >= 2)
    training.send(signal.SIGTERM)
    outcome = training.ended()
    assert outcome.seconds < GRACE
    (line,) = outcome.stderr.splitlines()
    assert outcome.code == 1
    assert line.startswith(f"error: the checkpoint {run.folder}/checkpoints/")
    assert "No space left on device" in line
    assert not [text for text in TRACE if text in outcome.stdout]
    assert run.damages() == []


# One process: tests/faults/test_storage.py.
@pytest.mark.long
def test_several_processes_go_on_and_end_together(disk: Path) -> None:
    folder = disk.with_name("run")  # what the processes print lies beside it, on a disk with space
    folder.symlink_to(disk)
    with pods.pod(folder, "2", "--devices=1") as training:
        training.wait_until(lambda: len(pods.steps(training.folder)) >= 2)
        fill(disk / "ballast")
        training.wait_until(lambda: training.output.count("could not be written") >= 2)
        known = max(pods.steps(training.folder))
        os.unlink(disk / "ballast")
        freed = time.monotonic()
        training.wait_until(lambda: max(pods.steps(training.folder)) > known + 2 * POD_STEPS)
        assert time.monotonic() - freed < 30
        fill(disk / "ballast")
        training.wait_until(lambda: training.output.count("could not be written") >= 4)
        begun = time.monotonic()
        os.kill(training.starts[0][1], signal.SIGTERM)
        assert training.ended() == 1
        assert time.monotonic() - begun < GRACE + 10
    assert not [text for text in TRACE if text in training.output]
