"""The folder of a run: what is written where, and what is said when it is no run."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl.config import ConfigError, default_config, resolve, to_json
from jaxrl.config.errors import RunError
from jaxrl.reporting.logs import log_to
from jaxrl.reporting.writers import TensorBoardWriter
from jaxrl.reporting.writers.tracker import RunIds
from jaxrl.runs import storage
from jaxrl.runs.folder import RunFolder
from tests.runs.checkpoint.checkpoints import file_size_limit, save_run


def test_config_round_trips(tmp_path: Path) -> None:
    raw = default_config()
    raw.env.num_envs = 32
    raw.stop["return"] = 475.0
    config = resolve(raw, device_count=2)
    folder = RunFolder(str(tmp_path / "a" / "run"))
    folder.create()
    folder.write_config(config)
    assert folder.read_config() == config


def test_creating_twice_keeps_what_is_there(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    folder.write_summary({"steps": 3})
    folder.create()
    assert json.loads((tmp_path / "summary.json").read_text()) == {"steps": 3}
    identity = folder.identity
    folder.create()
    assert (folder.identity, len(identity)) == (identity, 32)
    # The write test leaves nothing.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run", "summary.json"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="`--workdir` .*file/run.* cannot be written"):
        RunFolder(str(tmp_path / "file" / "run")).create()


def test_folder_without_config_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no config.json: is it a run folder"):
        RunFolder(str(tmp_path)).read_config()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seed": "x"}', '{"speed": 1}'])
def test_spoiled_config_is_answered_with_a_config_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError):
        RunFolder(str(tmp_path)).read_config()


def test_evaluations_have_a_folder(tmp_path: Path) -> None:
    lines = RunFolder(str(tmp_path)).record_evaluation("step-0.5-greedy-10", {"mean": 1.5}, b"picture")
    file = tmp_path / "evaluations" / "step-0.5-greedy-10.json"
    assert lines == [f"written to {file}", f"plot: {str(file).removesuffix('json')}png"]
    assert json.loads(file.read_text()) == {"mean": 1.5}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_an_evaluation_of_a_run_that_is_only_read_is_not_recorded(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, text: str) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(storage, "write_whole", fail)
    run = RunFolder(str(tmp_path))
    if number == errno.ENOSPC:
        with pytest.raises(RunError, match="cannot be written: .*No space left"):
            run.record_evaluation("step-5-greedy-10", {})
    else:
        file = tmp_path / "evaluations" / "step-5-greedy-10.json"
        lines = run.record_evaluation("step-5-greedy-10", {})
        assert lines == [f"not recorded: {file}: {os.strerror(number)}"]


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "scratch")
    folder = RunFolder(str(tmp_path / "latest"))
    folder.create()
    folder.record_evaluation("step-5-greedy-10", {"mean": 1.5})
    assert {path.name for path in (tmp_path / "scratch").iterdir()} == {".run", "evaluations"}


def test_links_in_the_folder_are_not_written_through(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    for name in ("evaluations", "export", "tensorboard", "trackers"):
        (run / name).symlink_to(outside)
    for name in ("summary.json", ".summary.json.tmp", "train.log", ".run", ".writable"):
        (run / name).symlink_to(outside / name)
    folder = RunFolder(str(run))
    with pytest.raises(RunError, match="it is a symbolic link, which is not followed"):
        folder.record_evaluation("step-5-greedy-10", {"mean": 1.5})
    folder.write_summary({"steps": 3})
    with log_to(run / "train.log"):
        logging.getLogger("jaxrl").warning("a line")
    with pytest.raises(OSError, match="symbolic link"):
        RunIds(str(run), "wandb").write("id")
    with pytest.raises(OSError, match="symbolic link"):
        TensorBoardWriter(run / "tensorboard").write(1, {"a": 1.0})
    folder.create()
    assert list(outside.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    folder.write_summary({"steps": 3})
    with (
        file_size_limit(100),
        pytest.raises(ConfigError, match="summary.json cannot be written: .*too large"),
    ):
        folder.write_summary({"steps": "4" * 1000})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"steps": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_reports_are_written_beside_the_summary(tmp_path: Path) -> None:
    written = RunFolder(str(tmp_path)).write_report("halted", {"iteration": 3})
    assert written == tmp_path / "halted.json"
    assert json.loads(written.read_text()) == {"iteration": 3}


@pytest.mark.parametrize("text", [None, "", '{"seed": ', '{"sEed": 0}'])
def test_a_lost_config_comes_from_the_latest_checkpoint(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    raw = default_config()
    raw.seed = 7
    config = resolve(raw, 1)
    save_run(tmp_path, 5, 10, config=to_json(config))
    (tmp_path / "checkpoints" / "10" / "meta" / "metadata").write_text("{}")
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert RunFolder(str(tmp_path)).read_config() == config
    assert "config.json is missing or damaged" in caplog.text
    raw.network.recurrence = "pallas"  # another way to compute the same
    RunFolder(str(tmp_path)).require_same(resolve(raw, 1))
    raw.seed = 8
    remedy = f"name another folder, to start there from its parameters with --config.init_from={tmp_path}"
    with pytest.raises(ConfigError, match=rf"`seed` \(=7 there, 8 now\): {remedy}$"):
        RunFolder(str(tmp_path)).require_same(resolve(raw, 1))


def test_a_lost_config_that_no_checkpoint_holds(tmp_path: Path) -> None:
    save_run(tmp_path, 5, config=None)
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        RunFolder(str(tmp_path)).require_same(resolve(default_config(), 1))


_HOLD = """
import sys, time
from jaxrl.runs.folder import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_two_trainers_never_share_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        holder = f"in use by process {other.pid} on {socket.gethostname()}"
        said = f"`--workdir` .*{tmp_path}.* is {holder}: end that, or name another folder$"
        for _ in range(2):  # failing changes nothing
            with pytest.raises(ConfigError, match=said), folder.lock():
                pass
        os.kill(other.pid, signal.SIGKILL)
    with folder.lock():  # the kernel has lifted the lock
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        assert (tmp_path / ".lock").read_text() == holder
        with pytest.raises(ConfigError, match=holder), RunFolder(str(tmp_path)).lock():
            pass
    with folder.lock():
        pass


def test_a_lock_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError, match="cannot be locked"), RunFolder(str(tmp_path)).lock():
        pass
    assert (tmp_path / "precious").read_text() == "text"
