"""Shares of the machine: the arithmetic, and figures of this very process."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from jaxrl.metrics import resources
from jaxrl.metrics.resources import Meter


def test_shares_are_of_the_time_since_the_reading_before() -> None:
    now, worked = iter([0.0, 10.0, 20.0, 20.0]), iter([1.0, 11.0, 51.0, 51.0])
    meter = Meter(4, lambda: next(now), lambda: next(worked))
    assert meter.read()["host/cpu_utilization"] == 0.25
    assert meter.read()["host/cpu_utilization"] == 1.0
    assert "host/cpu_utilization" not in meter.read()  # no time has passed


def test_a_busy_thread_counts() -> None:
    before = time.process_time()
    now = iter([0.0, 1.0])  # of one second, so that the share is the CPU seconds, however busy the machine is
    meter = Meter(1, lambda: next(now))

    def spin() -> None:
        while time.thread_time() < 0.1:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    thread.join()
    assert 0.1 <= meter.read()["host/cpu_utilization"] <= time.process_time() - before


def test_peak_memory_is_in_bytes() -> None:
    ballast = np.ones(1 << 28, np.uint8)
    peak = resources.peak_memory()
    assert ballast.nbytes < peak["host"] < 1 << 40
    assert peak["device"] is None


class FakeNvml:
    """Stands for the driver's library, which needs a GPU."""

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"index {index}"

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("chosen", "handles"),
    [(None, ["index 0", "index 1"]), ("1", ["index 1"]), ("GPU-8932f937, 0", ["GPU-8932f937", "index 0"])],
)
def test_gpus_that_cuda_leaves_visible(
    chosen: str | None, handles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert list(resources._visible(FakeNvml())) == handles
