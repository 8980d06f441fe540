"""Failures of files: damage, a full disk, a lost folder; training continues or says why it cannot."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Run, Training, differences, different_states, spoil
from tests.faults.tiny import STEPS
from tests.runs.checkpoint.checkpoints import mounted_disk

# With a network of this size a checkpoint has files larger than any other of a run.
LARGE, LIMIT = "--config.network.core_size=64", 2**16


# What is read of it: tests/runs/checkpoint/test_damage.py; one that is set aside: tests/e2e/test_resume.py.
@pytest.mark.long
def test_a_damaged_newest_checkpoint_is_told_and_the_one_before_used(straight: Run, run: Run) -> None:
    shutil.copytree(straight.folder, run.folder)
    newest, before = sorted(run.checkpoints)[-1], sorted(run.checkpoints)[-2]
    spoil(run.checkpoints[newest])
    outcome = run.train()
    assert outcome.code == 0, outcome.stderr
    said = " ".join((outcome.stdout + outcome.stderr).split())
    assert f"the checkpoint {run.folder}/checkpoints/{newest} is damaged: the array " in said
    assert f"it is now {run.folder}/corrupt/{newest}" in said
    assert f"continuing from step {before}, the latest intact checkpoint" in said
    assert "Traceback" not in said
    assert differences(run, straight) == []


@contextlib.contextmanager
def full_disk(disk: Path, training: Training) -> Iterator[None]:
    """Fills the disk until the block ends."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(bytes(1024)):
            pass
    yield
    ballast.unlink()


@contextlib.contextmanager
def limited_files(disk: Path, training: Training) -> Iterator[None]:
    """Lets the process write no large file until the block ends, for those who cannot mount a disk."""
    pid, unlimited = training.process.pid, resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT, unlimited))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))


@pytest.fixture
def run_on_small_disk(tmp_path: Path) -> Iterator[Run]:
    with mounted_disk(tmp_path, 4) as disk:
        run = Run(disk / "run")
        yield run
        run.end()


@pytest.mark.slow
def test_a_full_disk_costs_checkpoints_and_not_the_run(straight: Run, run_on_small_disk: Run) -> None:
    run = run_on_small_disk
    _train_without_space(run, lambda training: full_disk(run.folder.parent, training))
    assert different_states(run, straight) == []


@pytest.mark.faults
def test_a_limit_on_files_costs_checkpoints_and_not_the_run(run: Run, tmp_path: Path) -> None:
    _train_without_space(run, lambda training: limited_files(tmp_path, training), LARGE)


def _train_without_space(
    run: Run, no_space: Callable[[Training], contextlib.AbstractContextManager[None]], *options: str
) -> None:
    training = run.start(*options)
    training.wait_until(lambda: len(run.checkpoints) >= 2)
    with no_space(training):
        # Twice: it has tried again.
        training.wait_until(lambda: training.said().count("could not be written") >= 2)
        training.pause()
        assert len(run.checkpoints) >= 2
        assert run.damages() == []
        known = run.newest()
    training.resume()
    training.wait_until(lambda: run.newest() > known)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (0, "")
    assert run.damages() == []
    assert run.newest() == 40 * STEPS
    for row in run.rows():  # some may be lost, none is torn
        assert row["step"] <= run.newest()


@pytest.mark.slow
def test_a_folder_that_vanishes_is_told_and_made_anew(straight: Run, run: Run) -> None:
    training = run.start()
    training.wait_until(lambda: len(run.checkpoints) >= 2)
    training.pause()
    run.folder.rename(run.folder.with_name("moved"))
    training.resume()
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (0, "")
    (warning,) = [line for line in outcome.stdout.splitlines() if line.startswith("warning: JsonlWriter")]
    assert f"lost metrics, training continues: [Errno 2] No such file or directory: '{run.folder}" in warning
    assert different_states(run, straight) == []
    assert run.damages() == []
    moved = Run(run.folder.with_name("moved"))
    assert moved.damages() == []
    assert len(moved.checkpoints) >= 2


# One that vanishes: above.
@pytest.mark.long
def test_a_folder_that_stays_lost_ends_with_one_line(run: Run) -> None:
    training = run.start("--config.checkpoint.every_steps=0")
    training.wait_until(training.is_training)
    training.pause()
    shutil.rmtree(run.folder)
    run.folder.write_text("another's")
    training.resume()
    outcome = training.ended()
    assert outcome.code == 1
    assert outcome.stdout.count("no checkpoint, trying again") == 2
    assert len(outcome.stderr.splitlines()) == 1
    path = run.folder / "checkpoints" / str(40 * STEPS)
    assert outcome.stderr.startswith(f"error: the checkpoint {path} could not be written: Not a directory")
    assert run.folder.read_text() == "another's"
