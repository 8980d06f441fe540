"""Saves that fail: one line says so, older checkpoints stay, space comes back, and the next save works."""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jaxrl.parallel import process_exit
from jaxrl.runs.checkpoint import Checkpointer, SaveError, background_save
from jaxrl.runs.checkpoint.background_save import BackgroundSave
from tests.runs.checkpoint.checkpoints import abstract_of, assert_bitwise_equal, file_size_limit, mounted_disk

MEGABYTES = 4


@pytest.fixture
def checkpointer(tmp_path: Path) -> Iterator[Checkpointer]:
    checkpointer = Checkpointer(str(tmp_path / "run" / "checkpoints"), keep=3)
    yield checkpointer
    checkpointer.close()


def state_of(megabytes: float) -> dict[str, Any]:
    noise = np.random.default_rng(0).integers(0, 256, int(megabytes * 2**20), dtype=np.uint8)
    return {"params": {"w": jnp.asarray(noise), "v": jnp.arange(3)}}


def assert_holds(checkpointer: Checkpointer, step: int, state: Any) -> None:
    found = checkpointer.restore_latest(abstract_of(state))
    assert found is not None
    assert found[0] == step
    assert_bitwise_equal(found[1], state)


def test_a_save_that_fails_in_the_background(checkpointer: Checkpointer, tmp_path: Path) -> None:
    small = state_of(0.01)
    checkpointer.save(1, small, {})
    checkpointer.wait()
    with file_size_limit(2**18):
        assert checkpointer.save(2, state_of(MEGABYTES), {})
        with pytest.raises(SaveError, match="checkpoints/2 could not be written: .*File too large") as caught:
            checkpointer.wait()
        assert len(str(caught.value)) < 500
        assert "\n" not in str(caught.value)
        checkpointer.wait()  # said once
        assert checkpointer.last_saved == 1
        assert checkpointer.all_steps() == (1,)
        # Nothing is left that takes up the space which the next save needs.
        assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [".started", "1"]
        assert_holds(checkpointer, 1, small)
        # One that fits is saved at once, whatever went wrong before.
        assert checkpointer.save(2, small, {})
        checkpointer.wait()
    assert checkpointer.last_saved == 2
    assert_holds(checkpointer, 2, small)


def test_the_next_save_reports_a_failure_that_nobody_waited_for(
    checkpointer: Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    with file_size_limit(2**18):
        checkpointer.save(2, state_of(MEGABYTES), {}, score=9.0)
        assert checkpointer.all_steps() == ()  # waits, but leaves the failure to be told
    with caplog.at_level(logging.WARNING):
        assert checkpointer.save(3, state_of(0.01), {}, score=1.0)
    assert ["checkpoints/2 could not be written" in r.getMessage() for r in caplog.records] == [True]
    checkpointer.wait()
    assert checkpointer.all_steps() == (3,)
    assert checkpointer.best_step() == 3


def test_the_same_step_can_be_tried_again(checkpointer: Checkpointer) -> None:
    state = state_of(MEGABYTES)
    for _ in range(3):
        with file_size_limit(2**18):
            checkpointer.save(2, state, {})
            with pytest.raises(SaveError):
                checkpointer.wait()
    assert checkpointer.save(2, state, {})
    checkpointer.wait()
    assert_holds(checkpointer, 2, state)


def test_a_folder_that_vanishes_or_turns_into_a_file(checkpointer: Checkpointer, tmp_path: Path) -> None:
    state = state_of(0.01)
    checkpointer.save(1, state, {})
    checkpointer.wait()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("")
    for step in (2, 3):
        with pytest.raises(SaveError, match=f"checkpoints/{step} could not be written: Not a directory"):
            checkpointer.save(step, state, {})
    (tmp_path / "run").unlink()
    assert checkpointer.save(4, state, {})
    checkpointer.wait()
    assert_holds(checkpointer, 4, state)


def test_failures_leave_no_threads_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"))
    with file_size_limit(2**18):
        for step in (1, 2):
            checkpointer.save(step, state_of(MEGABYTES), {})
        with pytest.raises(SaveError):
            checkpointer.close()
    deadline = time.monotonic() + 10  # Orbax does not wait for the last of its own, which is ending.
    while not set(threading.enumerate()) <= before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def test_nothing_but_our_line_is_printed(
    checkpointer: Checkpointer, capfd: pytest.CaptureFixture[str]
) -> None:
    with file_size_limit(2**18):
        checkpointer.save(1, state_of(MEGABYTES), {})
        with pytest.raises(SaveError):
            checkpointer.wait()
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    with mounted_disk(tmp_path, 3) as disk:
        yield disk


def fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


def save_and_wait(checkpointer: Checkpointer, step: int, state: Any) -> None:
    checkpointer.save(step, state, {})
    checkpointer.wait()


def test_a_disk_that_is_full_and_then_read_only(small_disk: Path) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=True)

    state = state_of(0.5)
    checkpointer = Checkpointer(str(small_disk / "run" / "checkpoints"), keep=2)
    checkpointer.save(1, state, {})
    checkpointer.wait()
    used = shutil.disk_usage(small_disk).used
    for step in (2, 3):
        checkpointer.save(step, state_of(MEGABYTES), {})
        with pytest.raises(SaveError, match="No space left on device"):
            checkpointer.wait()
        assert shutil.disk_usage(small_disk).used <= used
    fill(small_disk / "other")
    with pytest.raises(SaveError, match="No space left on device"):
        save_and_wait(checkpointer, 4, state)
    (small_disk / "other").unlink()
    assert_holds(checkpointer, 1, state)
    assert checkpointer.save(5, state, {})
    checkpointer.wait()
    remount("ro")
    with pytest.raises(SaveError, match="checkpoints/6 could not be written: Read-only file system"):
        checkpointer.save(6, state, {})
    assert_holds(checkpointer, 5, state)
    remount("rw")
    assert checkpointer.save(7, state, {})
    checkpointer.close()
    assert checkpointer.all_steps() == (5, 7)


def test_a_save_that_does_not_move_is_given_up_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()  # of a disk that hangs
    state = state_of(0.01)
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"), gives_up=lambda idle: idle > 0.2)
    monkeypatch.setattr(background_save, "_POLL_SECONDS", 0.05)
    with monkeypatch.context() as hanging:
        hanging.setattr(BackgroundSave, "_write", lambda *arguments: answers.wait())
        checkpointer.save(1, state, {})
        with pytest.raises(SaveError, match="it makes no progress: the disk does not answer") as caught:
            checkpointer.wait()
    assert caught.value.stalled
    assert process_exit.must_leave()  # the process cannot end otherwise
    assert checkpointer.save(2, state, {})
    checkpointer.close()
    assert checkpointer.all_steps() == (2,)
    answers.set()
    deadline = time.monotonic() + 10
    while process_exit.must_leave() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not process_exit.must_leave()


@pytest.mark.slow
def test_looking_at_a_save_leaves_no_listing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: object) -> int:
        raise FileNotFoundError(path)

    (tmp_path / "7.tmp").touch()
    monkeypatch.setattr(background_save.checkpoint_files, "size", gone)
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        background_save._progress(epath.Path(tmp_path / "7"))
        gc.collect()
    assert not unclosed
