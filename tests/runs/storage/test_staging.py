"""Files that are appended to, and what a bucket gets of them."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from jaxrl.config import ConfigError
from jaxrl.runs.storage import StagedFolder, staging
from tests.runs.storage.gcs_server import GcsServer
from tests.runs.storage.test_lease import wait_until

TARGET = "gs://runs/mine"


@pytest.fixture(autouse=True)
def _client(gcs: GcsServer) -> None:
    """Every test has a bucket."""


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of gcsfs
def test_the_end_sends_everything_and_leaves_nothing_here(gcs: GcsServer) -> None:
    with StagedFolder(TARGET) as folder:
        (folder.path / "a.txt").write_bytes(b"one\r\n")
        (folder.path / "below").mkdir()
        (folder.path / "below" / "b").write_bytes(bytes(6_000_000))  # more than clients send in one piece
        (folder.path / "a.txt.tmp").write_text("half")
    assert gcs.files("runs") == {"mine/a.txt": b"one\r\n", "mine/below/b": bytes(6_000_000)}
    assert not folder.path.exists()


def test_what_lies_there_is_gone_on_with(gcs: GcsServer) -> None:
    gcs.put("runs", "mine/rows", b"1\n")
    with StagedFolder(TARGET, ("rows", "new")) as folder:
        assert (folder.path / "rows").read_bytes() == b"1\n"
        assert not (folder.path / "new").exists()
        with (folder.path / "rows").open("a") as stream:
            stream.write("2\n")
    assert gcs.files("runs") == {"mine/rows": b"1\n2\n"}
    with StagedFolder(TARGET, ("rows",)):
        gcs.requests.clear()
    assert not any(request.writes for request in gcs.requests)  # nothing had changed


def test_what_lies_there_and_cannot_be_read_is_never_overwritten(gcs: GcsServer) -> None:
    gcs.put("runs", "mine/rows", b"1\n")
    gcs.rule = lambda request: 403 if request.name == "mine/rows" else None
    folder = StagedFolder(TARGET, ("rows",))
    with pytest.raises(ConfigError, match=r"gs://runs/mine/rows cannot be read: Forbidden: "), folder:
        pass
    assert gcs.files("runs") == {"mine/rows": b"1\n"}


def test_it_is_sent_when_asked_but_seldom(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PAUSE", 0.2)
    with StagedFolder(TARGET) as folder:
        for i in range(15):
            (folder.path / "rows").write_text(f"{i}")
            folder.send_soon()
            time.sleep(0.02)
        wait_until(lambda: gcs.files("runs").get("mine/rows") == b"14")
    assert 2 <= sum(request.writes for request in gcs.requests) <= 4


def test_it_is_sent_without_being_asked(gcs: GcsServer) -> None:
    with StagedFolder(TARGET, every=0.1) as folder:
        (folder.path / "rows").write_text("1")
        wait_until(lambda: gcs.files("runs") == {"mine/rows": b"1"})


def test_a_failure_is_told_once_and_tried_again(
    gcs: GcsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PAUSE", 0.1)
    caplog.set_level("INFO")
    with StagedFolder(TARGET, every=0.1) as folder:
        gcs.rule = lambda request: 403 if request.writes else None
        (folder.path / "rows").write_text("1")
        wait_until(lambda: sum(request.writes for request in gcs.requests) >= 2)
        gcs.rule = lambda request: None
        wait_until(lambda: gcs.files("runs") == {"mine/rows": b"1"})
        wait_until(lambda: f"logs reach {TARGET} again" in caplog.text)
    assert caplog.text.count(f"logs do not reach {TARGET}, training continues: Forbidden: ") == 1


def test_what_cannot_be_sent_in_the_end_is_kept_here(
    gcs: GcsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "CLOSE_SECONDS", 0.2)
    held = threading.Event()

    def hold(request) -> None:
        held.wait(5)

    with StagedFolder(TARGET) as folder:
        gcs.rule = hold
        (folder.path / "rows").write_text("1")
    assert (folder.path / "rows").read_text() == "1"
    assert f"there was no time; `jaxrl sync {folder.path} {TARGET}` sends them" in caplog.text
    held.set()
    folder._thread.join(5)
    shutil.rmtree(folder.path)


def test_a_folder_that_is_lost_here_stops_nothing(gcs: GcsServer, tmp_path: Path) -> None:
    with StagedFolder(TARGET, every=0.1) as folder:
        shutil.rmtree(folder.path)
        time.sleep(0.3)
    assert gcs.files("runs") == {}
