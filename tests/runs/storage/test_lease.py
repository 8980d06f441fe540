"""The lock on a folder of a bucket: one holder, who is missed when it is gone."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time

import pytest

from jaxrl.config import ConfigError
from jaxrl.runs.storage import lease as lease_module
from jaxrl.runs.storage.lease import Lease
from tests.runs.storage.gcs_server import GcsServer, Request

PATH = "gs://runs/mine/.lock"
EVERY, LASTS = 0.1, 2.0


@pytest.fixture(autouse=True)
def _client(gcs: GcsServer) -> None:
    """Every test has a bucket."""


def make(lost: queue.SimpleQueue[str] | None = None) -> Lease:
    return Lease(PATH, (lost or queue.SimpleQueue()).put, EVERY, LASTS)


def content(gcs: GcsServer) -> dict[str, object]:
    return json.loads(gcs.files("runs")["mine/.lock"])


def put(gcs: GcsServer, **changes: object) -> None:
    """Writes the lock as another process would."""
    gcs.put("runs", "mine/.lock", json.dumps(content(gcs) | changes).encode())


def test_one_process_at_a_time(gcs: GcsServer) -> None:
    first = make()
    first.acquire()
    assert content(gcs)["process"] == os.getpid()
    with pytest.raises(ConfigError, match=f"^in use by process {os.getpid()} on "):
        make().acquire()
    first.release()
    assert gcs.files("runs") == {}
    again = make()
    again.acquire()
    again.release()


def test_a_holder_of_this_machine_that_is_dead_is_replaced_at_once(gcs: GcsServer) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gcs.put("runs", "mine/.lock", b"{}")
    put(gcs, holder="process 1 on here", machine=lease_module._machine(), process=dead.pid)
    lease, started = make(), time.monotonic()
    lease.acquire()
    assert time.monotonic() - started < LASTS / 2
    assert content(gcs)["process"] == os.getpid()
    lease.release()


@pytest.mark.slow
def test_a_holder_elsewhere_that_does_not_renew_is_replaced_in_time(
    gcs: GcsServer, caplog: pytest.LogCaptureFixture
) -> None:
    gcs.put("runs", "mine/.lock", b"{}")
    put(gcs, holder="process 1 on elsewhere", machine="elsewhere", process=1)
    lease, started = make(), time.monotonic()
    lease.acquire()
    assert LASTS - 1 < time.monotonic() - started < LASTS + 3
    assert "process 1 on elsewhere had it " in caplog.text
    assert "taking over from process 1 on elsewhere" in caplog.text
    lease.release()


def test_a_holder_elsewhere_that_renews_is_noticed(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = make()
    holder.acquire()
    monkeypatch.setattr(lease_module, "_machine", lambda: "another")
    started = time.monotonic()
    with pytest.raises(ConfigError, match="^in use by "):
        make().acquire()
    assert time.monotonic() - started < LASTS
    holder.release()


def test_a_renewal_alone_shows_that_a_holder_lives(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process on another machine nothing else is known."""
    monkeypatch.setattr(lease_module, "_state", lambda content: "unknown")
    holder = make()
    holder.acquire()
    end = threading.Timer(2 * LASTS, holder.release)  # else whoever overlooks it would wait for ever
    end.start()
    started = time.monotonic()
    with pytest.raises(ConfigError, match="^in use by "):
        make().acquire()
    assert time.monotonic() - started < LASTS
    end.cancel()
    holder.release()


def test_who_has_lost_it_is_told(gcs: GcsServer) -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    holder = make(lost)
    holder.acquire()
    put(gcs, holder="process 7 on elsewhere", id="theirs")
    assert lost.get(timeout=5) == "process 7 on elsewhere"
    holder.release()
    assert content(gcs)["id"] == "theirs"  # It is not deleted by who lost it.


def test_a_renewal_whose_answer_was_lost_is_no_loss(gcs: GcsServer) -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    holder = make(lost)
    holder.acquire()
    before = gcs.buckets["runs"]["mine/.lock"].generation
    put(gcs)  # the same content, another generation
    wait_until(lambda: gcs.buckets["runs"]["mine/.lock"].generation > before + 2)
    del gcs.buckets["runs"]["mine/.lock"]
    wait_until(lambda: "mine/.lock" in gcs.buckets["runs"])
    assert lost.empty()
    holder.release()
    assert gcs.files("runs") == {}


def test_a_bucket_out_of_reach_loses_nothing(gcs: GcsServer, caplog: pytest.LogCaptureFixture) -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    holder = Lease(PATH, lost.put, EVERY, 0.5)
    holder.acquire()

    def forbid(request: Request) -> int | None:
        return 403 if request.writes else None

    gcs.rule = forbid
    wait_until(lambda: "cannot be renewed, training continues: Forbidden" in caplog.text)
    gcs.rule = lambda request: None
    before = gcs.buckets["runs"]["mine/.lock"].generation
    wait_until(lambda: gcs.buckets["runs"]["mine/.lock"].generation > before)
    assert lost.empty()
    assert caplog.text.count("cannot be renewed") == 1
    holder.release()


def wait_until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
