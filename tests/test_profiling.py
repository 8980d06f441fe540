"""Trace windows: written where TensorBoard looks, and never in the way of training."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxrl.profiling import TraceWindow


class Profiler:
    """Stands in for JAX's profiler, which is slow to start; records what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.fails = fails
        monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: self._call("start"))
        monkeypatch.setattr(jax.profiler, "stop_trace", lambda: self._call("stop"))

    def _call(self, name: str) -> None:
        if self.fails:
            raise RuntimeError("profiler is busy")
        self.calls.append(name)


def calls_of(window: TraceWindow, profiler: Profiler, iterations: list[int]) -> list[int]:
    """How many calls the profiler had received after each iteration."""
    counts = []
    for iteration in iterations:
        window.step(iteration)
        counts.append(len(profiler.calls))
    return counts


def test_writes_a_trace_that_tensorboard_finds(tmp_path: Path) -> None:
    window = TraceWindow(tmp_path, start_iteration=1, num_iterations=1)
    double = jax.jit(lambda x: x * 2)
    x = jnp.ones(8)
    for iteration in range(3):
        window.step(iteration, pending=x)
        x = double(x)
    window.close()
    assert list((tmp_path / "plugins" / "profile").glob("*/*.xplane.pb"))


def test_window_opens_and_ends_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    assert calls_of(TraceWindow(tmp_path, 2, 2), profiler, [0, 1, 2, 3, 4, 5]) == [0, 0, 1, 1, 2, 2]


def test_window_with_several_iterations_per_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    assert calls_of(TraceWindow(tmp_path, 3, 5), profiler, [0, 10, 20, 30]) == [0, 1, 2, 2]


def test_no_iterations_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    assert calls_of(TraceWindow(tmp_path, 0, 0), profiler, [0, 1]) == [0, 0]


def test_close_ends_an_open_trace_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    window = TraceWindow(tmp_path, 0, 100)
    window.step(0)
    window.close()
    window.close()
    window.step(1)
    assert profiler.calls == ["start", "stop"]


def test_a_failing_profiler_warns_once_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Profiler(monkeypatch, fails=True)
    window = TraceWindow(tmp_path, 0, 2)
    for iteration in range(4):
        window.step(iteration)
    window.close()
    assert [record.getMessage() for record in caplog.records] == [
        "no trace: the profiler did not start: profiler is busy"
    ]
