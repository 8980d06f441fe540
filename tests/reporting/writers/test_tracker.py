"""Trackers in a thread of their own: training never waits for them and never fails with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from jaxrl.reporting.writers import tracker
from jaxrl.reporting.writers.tracker import Background, Row


class Service(tracker.Tracker):
    """A tracker that can be out of reach, slow, or know a run already."""

    name = "service"

    def __init__(self, known: int = -1) -> None:
        super().__init__("runs/a", "project", "", {})
        self.known = known
        self.reachable = True
        self.gate = threading.Event()
        self.gate.set()
        self.opened: list[bool] = []
        self.calls: list[list[int]] = []
        self.summaries: list[Mapping[str, Any] | None] = []

    def open(self, resume: bool) -> int:
        self._reach()
        self.opened.append(resume)
        return self.known

    def log(self, rows: Sequence[Row]) -> None:
        self.gate.wait()
        self._reach()
        self.calls.append([row.step for row in rows])

    def close(self, summary: Mapping[str, Any] | None) -> None:
        self.summaries.append(summary)

    @property
    def steps(self) -> list[int]:
        return [step for call in self.calls for step in call]

    def _reach(self) -> None:
        if not self.reachable:
            raise ConnectionError("no route to host")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.005)


def test_rows_arrive_together_and_in_order() -> None:
    service = Service()
    writer = Background(service, every=60)
    writer.status("compiling")
    until(lambda: service.opened == [False])
    for step in range(120):
        writer.write(step, {"a": 1.0})
    writer.histograms(120, {"returns": [1.0, 2.0]})
    writer.finish({"stop_reason": "steps", "steps": 120})
    writer.close()
    assert service.steps == list(range(121))
    assert len(service.calls) == 3
    assert service.summaries == [{"stop_reason": "steps", "steps": 120}]


def test_nothing_is_opened_for_a_run_that_does_nothing() -> None:
    service = Service()
    writer = Background(service)
    writer.resume_from(10)
    writer.close()
    assert service.opened == service.summaries == []


def test_a_resumed_run_goes_on_after_what_the_tracker_knows() -> None:
    service = Service(known=40)
    writer = Background(service)
    writer.resume_from(20)
    for step in (30, 40, 40, 50, 50, 60):
        writer.write(step, {})
    writer.close()
    assert service.opened == [True]
    assert service.steps == [50, 50, 60]


def test_a_rollback_sends_no_step_twice() -> None:
    service = Service()
    writer = Background(service)
    for step in (10, 20, 30):
        writer.write(step, {})
    writer.resume_from(10)
    for step in (20, 30, 40):
        writer.write(step, {})
    writer.close()
    assert service.steps == [10, 20, 30, 40]


def test_a_tracker_out_of_reach_warns_once_and_gets_all_rows_later(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.reachable = False
    writer = Background(service, every=0.01)
    writer.write(1, {})
    until(lambda: bool(caplog.records))
    writer.write(2, {})
    time.sleep(0.1)
    service.reachable = True
    until(lambda: service.steps == [1, 2])
    service.reachable = False
    writer.write(3, {})
    writer.close()
    assert [record.getMessage() for record in caplog.records] == [
        "service fails, training continues: ConnectionError: no route to host"
    ]
    assert service.steps == [1, 2]


def test_a_tracker_that_hangs_holds_up_neither_training_nor_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracker, "CLOSE_SECONDS_AFTER_SIGNAL", 0.2)
    service = Service()
    service.gate.clear()
    writer = Background(service, every=0.01)
    started = time.monotonic()
    for step in range(100):
        writer.write(step, {})
    writer.finish({"stop_reason": "SIGTERM"})
    writer.close()
    assert time.monotonic() - started < 5
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for service, at most 0 s",
        "service did not end in time; it lacks the last rows",
    ]
    service.gate.set()


@pytest.mark.slow
def test_one_that_never_opens_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracker, "CLOSE_SECONDS_AFTER_SIGNAL", 0.1)
    service = Service()
    answer = threading.Event()
    monkeypatch.setattr(service, "open", lambda resume: answer.wait() and -1)
    writer = Background(service)
    writer.write(1, {})
    started = time.monotonic()
    writer.finish({"stop_reason": "steps"})
    writer.close()
    assert time.monotonic() - started < 5
    assert "did not end in time" in caplog.text
    answer.set()


def test_what_a_full_inbox_drops_is_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "_MAX_ROWS", 5)
    service = Service()
    service.gate.clear()
    writer = Background(service, every=60)
    writer.write(0, {})
    until(lambda: service.opened == [False])
    time.sleep(0.05)  # it is handing over row 0 now
    for step in range(1, 9):
        writer.write(step, {})
    service.gate.set()
    writer.close()
    assert service.steps == [0, 4, 5, 6, 7, 8]


def test_names_of_runs() -> None:
    assert tracker.run_name("runs/ppo/20260101-120000", "") == "ppo/20260101-120000"
    assert tracker.run_name("runs/mine", "") == "mine"
    assert tracker.run_name("/home/me/runs/mine/", "") == "me/mine"
    assert tracker.run_name("runs/mine", "baseline") == "baseline"
