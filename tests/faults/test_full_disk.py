"""Signals, a NaN and several processes on a disk that is full or read-only: answered within seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.faults.disks import ext4, fill, make_read_only
from tests.faults.harness import GRACE, Run, Training
from tests.faults.test_signals import FAULTY
from tests.parallel.multi_process import pods
from tests.parallel.multi_process.tiny import STEPS as POD_STEPS

FOR_EVER = "--config.stop.steps=1000000000"
SMALL = [
    f"--config.{field}"
    for field in ("env.num_envs=8", "ppo.rollout_length=8", "stop.steps=20_000", "evaluate.every_steps=5_000")
]
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
@pytest.mark.parametrize("how", ["full", pytest.param("read-only", marks=pytest.mark.long)])
def test_a_signal_is_answered_in_time_whatever_the_disk_does(disk: Path, how: str) -> None:
    run, training = start(disk, FOR_EVER)
    if how == "full":
        fill(disk / "ballast")
    else:
        make_read_only(disk)
    training.wait_until(lambda: training.said().count("could not be written") >= 2)
    training.send(signal.SIGTERM)
    outcome = training.ended()
    assert outcome.seconds < GRACE
    (line,) = outcome.stderr.splitlines()
    assert outcome.code == 1
    assert line.startswith(f"error: the checkpoint {run.folder}/checkpoints/")
    assert ("No space left on device" if how == "full" else "Read-only file system") in line
    assert not [text for text in TRACE if text in outcome.stdout]
    assert run.damages() == []


# Without a report: tests/training/test_nonfinite.py.
@pytest.mark.long
def test_a_nan_on_a_full_disk_is_still_named(disk: Path) -> None:
    run = Run(disk / "run", notes=disk.with_name("notes"))
    training = run.start(*FAULTY, "--config.env.stagger=false", "--config.log.writers=('tensorboard','csv')")
    training.wait_until(training.is_training)
    fill(disk / "ballast")
    outcome = training.ended()
    message = "nan in reward, time step 3 of environment 0, in the rollout of iteration 6"
    assert (outcome.code, outcome.stderr) == (1, f"error: {message}\n")


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


# In one process: tests/search/test_trials.py.
@pytest.mark.long
def test_a_search_goes_on_once_there_is_space_again(disk: Path) -> None:
    space = disk.with_name("space.yaml")
    space.write_text("ppo.learning_rate: {log: [1e-4, 1e-2]}\n")
    command = ["-m", "jaxrl", "search", "ppo_mlp", f"--space={space}", "--trials=2", "--jobs=1"]
    command += ["--verify=0", f"--workdir={disk / 'search'}", *SMALL]

    def searched() -> subprocess.CompletedProcess[str]:
        return processes.run(*command, cwd=disk.parent)

    printed = [disk.with_name(name) for name in ("printed", "complaints")]
    with printed[0].open("w") as output, printed[1].open("w") as complaints:
        search = processes.start(*command, cwd=disk.parent, stdout=output, stderr=complaints)
    while not (disk / "search/trials/0001.log").exists():
        assert search.poll() is None
        time.sleep(0.02)
    fill(disk / "ballast")
    assert search.wait(120) == 1
    said = printed[1].read_text()
    assert said.startswith("error: "), said
    assert said.count("\n") == 1, said
    assert "with free space the same command continues" in said
    again = searched()
    assert again.returncode in (1, 2), again.stdout  # still full
    assert again.stderr.count("\n") == 1, again.stderr
    os.unlink(disk / "ballast")
    done = searched()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 trials done" in done.stdout
