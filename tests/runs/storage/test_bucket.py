"""Buckets: what is said of one that cannot be used; what is out of reach is not taken for missing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from etils import epath

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.runs import records, storage
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, checkpoint_files, checkpoint_folder
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.storage import bucket
from tests.runs.checkpoint.checkpoints import (
    abstract_of,
    assert_bitwise_equal,
    meta_at,
    save_run,
    state_at,
)
from tests.runs.storage.gcs_server import GcsServer, Request

RUN = "gs://runs/mine"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("s3://runs/mine", r"cannot be on S3: .* `jaxrl sync FOLDER s3://runs/mine`$"),
        ("gcs://runs/mine", "must be a local folder or gs://bucket/folder$"),
        ("gs://runs", "must be a local folder or gs://bucket/folder$"),
        ("gs:///mine", "must be a local folder or gs://bucket/folder$"),
        ("gs://Runs/mine", "names no bucket: 'Runs' must be 3 to 63 of "),
        (
            "gs://missing/mine",
            r"cannot be used: there is no bucket gs://missing; `gcloud storage buckets cre",
        ),
    ],
)
def test_an_address_that_is_no_run_folder(gcs: GcsServer, path: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"^`--workdir` \(='{path}'\) {problem}"):
        storage.require_run_folder("--workdir", path)


@pytest.mark.parametrize(
    ("status", "only_writes", "problem"),
    [
        (403, False, r"cannot be read: Forbidden: .* \(the role roles/storage.objectUser on the bucket is"),
        (403, True, r"cannot be written: Forbidden: .* \(the role roles/storage.objectUser on the bucket is"),
        (401, False, r"cannot be read: .* \(log in with `gcloud auth application-default login`, or "),
        (503, False, r"cannot be reached in 1 s: 127\.0\.0\.1:\d+ answers, but not in time, or with errors$"),
    ],
)
def test_a_bucket_that_cannot_be_used(
    gcs: GcsServer, status: int, only_writes: bool, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "TIMEOUT_SECONDS", 0.6)  # 1 in messages
    gcs.rule = lambda request: status if request.writes or not only_writes else None
    with pytest.raises(ConfigError, match=rf"^`--workdir` \(='{RUN}'\) {problem}"):
        RunFolder(RUN).create()


def test_a_bucket_that_nobody_answers_for(monkeypatch: pytest.MonkeyPatch, gcs: GcsServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{where}")
        monkeypatch.setattr(bucket, "TIMEOUT_SECONDS", 0.6)  # 1 in messages
        with pytest.raises(ConfigError, match=f"cannot be reached in 1 s: {where}: Connection refused$"):
            storage.require_run_folder("--workdir", RUN)


def test_trying_a_bucket_leaves_nothing_but_the_identity_of_the_run(gcs: GcsServer) -> None:
    storage.require_run_folder("--workdir", RUN, writable=True)
    assert gcs.files("runs") == {}
    folder = RunFolder(RUN)
    folder.create()
    assert gcs.files("runs") == {"mine/.run": f"{folder.identity}\n".encode()}


@pytest.mark.slow
def test_the_command_line_looks_before_jax_is_loaded(gcs: GcsServer) -> None:
    started = time.monotonic()
    program = (
        "import sys; from jaxrl.main import main; code = main(); assert 'jax' not in sys.modules; exit(code)"
    )
    arguments = ["--config=tests/faults/tiny.py", "--workdir=gs://missing/mine"]
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=root
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: `--workdir` (='gs://missing/mine') cannot be used: there is no bu")
    assert len(ended.stderr.splitlines()) == 1
    assert time.monotonic() - started < 20


def test_init_from_a_bucket_is_looked_at_too(gcs: GcsServer) -> None:
    gcs.put("runs", "mine/config.json", b"{}")
    storage.require_folder("init_from", RUN)
    with pytest.raises(
        ConfigError, match=r"^`init_from` \(='gs://runs/none'\) must be a folder; there is none"
    ):
        storage.require_folder("init_from", "gs://runs/none")


def test_checkpoints_in_a_bucket(gcs: GcsServer, caplog: pytest.LogCaptureFixture) -> None:
    save_run(epath.Path(RUN), 5, 10, 15)
    checkpoints = Checkpointer(f"{RUN}/checkpoints", keep=3)
    assert checkpoints.all_steps() == (5, 10, 15)
    assert checkpoints.best_step() == 5
    state, meta = checkpoints.restore(10, abstract_of(state_at(10)))
    assert_bitwise_equal(state, state_at(10))
    assert meta == meta_at(10)
    # Damaged: one bit of the newest.
    name = max(
        (n for n in gcs.files("runs") if n.startswith("mine/checkpoints/15/state/d/")),
        key=lambda n: len(gcs.files("runs")[n]),
    )
    content = bytearray(gcs.files("runs")[name])
    content[len(content) // 2] ^= 1
    gcs.put("runs", name, bytes(content))
    files = gcs.files("runs", "mine/checkpoints/15/")
    found = checkpoints.restore_latest(abstract_of(state_at(10)))
    assert found is not None
    assert found[0] == 10
    assert f"{RUN}/checkpoints/15 is damaged: the array " in caplog.text
    assert gcs.files("runs", "mine/corrupt/15/").items() >= files.items()
    assert checkpoints.all_steps() == (5, 10)
    assert checkpoints.save(15, state_at(15), {"iteration": 3})
    checkpoints.close()
    assert checkpoints.intact_steps() == (5, 10, 15)


@pytest.mark.slow
def test_only_the_last_and_the_best_are_kept(gcs: GcsServer) -> None:
    checkpoints = Checkpointer(f"{RUN}/checkpoints", keep=1)
    for step, score in ((5, 1.0), (10, 3.0), (15, 2.0), (20, None)):
        checkpoints.save(step, state_at(step), {}, score)
    checkpoints.close()
    assert checkpoints.all_steps() == (10, 20)
    assert {name.split("/")[2] for name in gcs.files("runs")} == {"10", "20", ".started"}


@pytest.mark.slow
def test_what_a_kill_left_is_no_checkpoint(gcs: GcsServer) -> None:
    save_run(epath.Path(RUN), 5, 10)
    del gcs.buckets["runs"]["mine/checkpoints/10/commit_success.txt"]
    checkpoints = Checkpointer(f"{RUN}/checkpoints", keep=2)
    assert checkpoints.all_steps() == (5,)
    assert checkpoints.save(10, state_at(10), {})
    checkpoints.close()
    assert checkpoints.intact_steps() == (5, 10)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_nothing_is_taken_for_missing_that_is_out_of_reach(
    gcs: GcsServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_run(epath.Path(RUN), 5, 10)
    checkpoints = Checkpointer(f"{RUN}/checkpoints", keep=2)
    before = gcs.files("runs")
    count = len(gcs.requests)
    checkpoint_folder.find(epath.Path(f"{RUN}/checkpoints"))
    count = len(gcs.requests) - count
    real_sleep = bucket.filesystem()  # the client exists before its pauses are cut
    assert real_sleep is not None
    monkeypatch.setattr("gcsfs.retry.random.random", lambda: -1e9)  # no pauses between its tries
    for failing in range(count):
        seen = 0

        def fail(request: Request, failing: int = failing) -> int | None:
            nonlocal seen
            seen += 1
            return status if seen > failing else None

        gcs.rule = fail
        try:
            steps = tuple(checkpoint_folder.find(epath.Path(f"{RUN}/checkpoints")).steps)
        except OSError:
            continue
        assert steps == (5, 10)
    gcs.rule = lambda request: status
    with pytest.raises(CheckpointError):
        checkpoints.all_steps()
    checkpoints._upkeep.clear()
    gcs.rule = lambda request: None
    assert gcs.files("runs") == before


def test_files_are_listed_counted_and_set_aside(gcs: GcsServer) -> None:
    for name in ("7/a", "7/b/c", "71/d"):
        gcs.put("runs", f"mine/{name}", name.encode())
    folder = epath.Path(f"{RUN}/7")
    assert storage.entries(RUN) == {"7": True, "71": True}
    assert storage.entries(f"{RUN}/none") == {}
    assert [str(f) for f in checkpoint_files.plain_files(folder)] == [f"{RUN}/7/a", f"{RUN}/7/b/c"]
    assert checkpoint_files.size(folder) == 8
    assert str(checkpoint_files.set_aside(folder, epath.Path(f"{RUN}/corrupt"))) == f"{RUN}/corrupt/7"
    assert gcs.files("runs", "mine/") == {"71/d": b"71/d", "corrupt/7/a": b"7/a", "corrupt/7/b/c": b"7/b/c"}


def test_a_failure_that_nobody_foresaw_is_one_line(
    capsys: pytest.CaptureFixture[str], gcs: GcsServer
) -> None:
    gcs.rule = lambda request: 400

    def job() -> int:
        bucket.filesystem().cat_file("runs/mine/x")
        return 0

    assert command_line.exit_code(job, debug=False) == 1
    assert capsys.readouterr().err == "error: the storage failed: This fault was ordered by a test., 400\n"
    with pytest.raises(Exception, match="This fault was ordered by a test"):
        command_line.exit_code(job, debug=True)


def test_runs_are_found_as_they_come(gcs: GcsServer) -> None:
    gcs.put("runs", "sweep/a/config.json", b"{}")
    assert records.find(["gs://runs/sweep"]) == ["gs://runs/sweep/a"]
    gcs.put("runs", "sweep/b/config.json", b"{}")
    assert records.find(["gs://runs/sweep"]) == ["gs://runs/sweep/a", "gs://runs/sweep/b"]
    assert records.find(["gs://runs/sweep/*"]) == ["gs://runs/sweep/a", "gs://runs/sweep/b"]
