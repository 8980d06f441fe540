"""The folder of a pipeline: its lock, what is set aside, what may be removed, and which one is the newest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl.config import ConfigError
from jaxrl.pipeline.digests import FILE, PRESENT, RESULT, TREE, StageOutput
from jaxrl.pipeline.pipeline_folder import (
    DONE,
    PipelineFolder,
    StageRecord,
    StepRecord,
    expected_seconds,
    latest,
)


def folder_of(path: Path) -> PipelineFolder:
    folder = PipelineFolder(str(path), "mine")
    folder.create("name: mine\n")
    return folder


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    record = StageRecord(
        DONE,
        {"settings": {"train.steps": 3}},
        (StepRecord(("jaxrl", "train"), 1.5),),
        {"train.run": "x"},
        2.5,
    )
    folder_of(tmp_path).put("train", record)
    again = PipelineFolder(str(tmp_path), "mine")
    assert again.records == {"train": record}
    assert expected_seconds(str(tmp_path.parent), "mine", "train", again) == 2.5
    with pytest.raises(ConfigError, match="holds the pipeline 'mine', not 'other'"):
        PipelineFolder(str(tmp_path), "other")
    (tmp_path / "state.json").write_text('{"pipeline": "mine", "stages": {"train": {"state": "?"}}}')
    with pytest.raises(ConfigError, match="is damaged .*; remove it to start over"):
        PipelineFolder(str(tmp_path), "mine")


def test_what_is_made_again_is_kept_aside(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for content in ("first", "second"):
        folder.stage("train").mkdir()
        (folder.stage("train") / "file").write_text(content)
        folder.set_aside("train")
    folder.set_aside("train")  # There is nothing.
    assert (tmp_path / "earlier/train-1/file").read_text() == "first"
    assert (tmp_path / "earlier/train-2/file").read_text() == "second"


def test_nothing_outside_of_the_folder_is_removed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "pipeline")
    outside, inside = tmp_path / "outside", tmp_path / "pipeline/data/data"
    for place in (outside, inside):
        place.mkdir(parents=True)
        (place / "file").write_text("x")
    (tmp_path / "pipeline/link").symlink_to(outside)
    for path in (str(outside), str(tmp_path / "pipeline/link"), f"{tmp_path}/pipeline/../outside"):
        folder.clear(path)
    assert (outside / "file").exists()
    folder.clear(str(inside))
    assert not inside.exists()


def test_a_second_pipeline_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with folder.lock(print), pytest.raises(ConfigError, match="in use by another pipeline"):  # noqa: SIM117
        with PipelineFolder(str(tmp_path), "mine").lock(print):
            pass
    with folder.lock(print):
        pass  # It is free again.


def test_a_command_of_a_killed_pipeline_is_waited_for(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / ".owner").write_text(str(gone.pid))
    code = (
        "import fcntl, sys, time\n"
        "stream = open(sys.argv[1], 'a'); fcntl.flock(stream, fcntl.LOCK_EX); print('locked', flush=True)\n"
        "time.sleep(0.4)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        said: list[str] = []
        with folder.lock(said.append):
            assert child.wait(timeout=10) == 0
    assert said == ["waiting for a command of the pipeline that was killed, which may be saving"]


def test_the_newest_folder_of_that_name_is_found(tmp_path: Path) -> None:
    for name in ("mine_20250101-000000", "mine_20260101-000000", "mine_too_20270101-000000", "mine_x"):
        (tmp_path / name).mkdir()
    assert latest(str(tmp_path), "mine") == str(tmp_path / "mine_20260101-000000")
    assert latest(str(tmp_path), "other") is None


def test_digests_are_of_what_counts(tmp_path: Path) -> None:
    file = tmp_path / "a/x.json"
    file.parent.mkdir()
    file.write_text('{"mean": 3, "host": "here", "command": "x"}')
    found = {kind: StageOutput(kind, str(file)).digest() for kind in (FILE, RESULT)}
    tree = StageOutput(TREE, str(file.parent)).digest()
    file.write_text('{"mean": 3, "host": "there", "command": "y"}')
    assert StageOutput(RESULT, str(file)).digest() == found[RESULT]
    assert StageOutput(FILE, str(file)).digest() != found[FILE]
    assert StageOutput(TREE, str(file.parent)).digest() != tree
    file.write_text('{"mean": 4}')
    assert StageOutput(RESULT, str(file)).digest() != found[RESULT]
    assert StageOutput(PRESENT, str(file)).digest() == PRESENT
    for kind in (FILE, RESULT, TREE, PRESENT, "run"):
        assert StageOutput(kind, str(tmp_path / "nowhere")).digest() is None
