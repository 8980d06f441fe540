"""Traces: written where TensorBoard looks, of whole iterations, and never in the way of training."""

from __future__ import annotations

import logging
import pstats
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxrl.metrics import tracing
from jaxrl.metrics.tracing import SIGNAL_ITERATIONS, Traces, host_profile


class Profiler:
    """Stands in for JAX's profiler, which is slow to start; records what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.fails = fails
        monkeypatch.setattr(jax.profiler, "start_trace", lambda folder, **options: self._call("start"))
        monkeypatch.setattr(jax.profiler, "stop_trace", lambda: self._call("stop"))

    def _call(self, name: str) -> None:
        if self.fails:
            raise RuntimeError("profiler is busy")
        self.calls.append(name)


def train(
    traces: Traces, dispatch: int, until: int, profiler: Profiler, start: int = 0
) -> list[tuple[int, str]]:
    """Dispatches `dispatch` iterations at a time, fewer where a trace asks for it; (iteration, call)."""
    seen, iteration = [], start
    while iteration < until:
        known = len(profiler.calls)
        traces.step(iteration)
        seen += [(iteration, call) for call in profiler.calls[known:]]
        iteration = min(iteration + dispatch, until, traces.edge())
    traces.close()
    return seen


@pytest.mark.slow
def test_writes_a_trace_that_tensorboard_finds_and_the_programs_beside_it(
    tmp_path: Path,
) -> None:
    @jax.jit
    def work(x: jax.Array) -> jax.Array:
        with tracing.phase("rollout"):
            return jnp.sin(x) + x

    x = jnp.ones(16)
    program = work.lower(x).compile()
    said: list[str] = []
    traces = Traces(tmp_path, window=(1, 1), programs=lambda: [program], tell=said.append)
    for iteration in range(3):
        traces.step(iteration, x)
        x = program(x)
    (folder,) = (tmp_path / "plugins" / "profile").iterdir()
    assert list(folder.glob("*.xplane.pb"))
    assert "rollout/sin" in (folder / "jit_work.hlo.txt").read_text()
    assert said == [f"wrote a trace: jaxrl profile-summary {folder}"]


def test_covers_the_asked_iterations_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    assert train(Traces(tmp_path, (2, 3)), 10, 40, profiler) == [(2, "start"), (5, "stop")]


def test_a_run_that_resumes_beyond_the_start_is_traced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Profiler(monkeypatch)
    assert train(Traces(tmp_path, (2, 3)), 10, 40, profiler, start=20) == [(20, "start"), (23, "stop")]


def test_can_be_asked_for_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    traces = Traces(tmp_path, (0, 0))
    assert traces.edge() == sys.maxsize
    for begin in (10, 20):
        traces.request(begin, exact=True)
        assert train(traces, 10, begin + 10, profiler, start=begin) == [
            (begin, "start"),
            (begin + SIGNAL_ITERATIONS, "stop"),
        ]


def test_one_of_several_processes_keeps_the_dispatches_that_all_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Profiler(monkeypatch)
    traces = Traces(tmp_path, (0, 0))
    traces.request(0, exact=False)
    assert train(traces, 10, 40, profiler) == [(0, "start"), (10, "stop")]
    # One that records nothing makes them too.
    assert Traces(None, (2, 3)).edge() == 2
    assert train(Traces(None, (2, 3)), 10, 40, profiler) == []


def test_an_open_trace_is_written_when_training_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    traces = Traces(tmp_path, (0, 100))
    traces.step(0)
    traces.close()
    traces.close()
    assert profiler.calls == ["start", "stop"]


def test_a_failing_profiler_warns_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = Profiler(monkeypatch, fails=True)
    with caplog.at_level(logging.WARNING):
        assert train(Traces(tmp_path, (0, 2)), 1, 5, profiler) == []
    assert [record.getMessage() for record in caplog.records] == [
        "no trace: the profiler did not start: profiler is busy"
    ]


def test_host_profile_names_what_took_long(tmp_path: Path) -> None:
    def slow() -> int:
        return sum(i * i for i in range(100_000))

    with host_profile(tmp_path, enabled=True) as lines:
        slow()
    assert re.match(r"host: [\d.]+ s in Python's main thread", lines[0])
    assert any("test_tracing.py" in line and "genexpr" in line for line in lines[2:5])
    assert (tmp_path / "host_profile.txt").read_text() == "\n".join(lines) + "\n"
    assert pstats.Stats(str(tmp_path / "host_profile.pstats")).total_tt > 0  # type: ignore[attr-defined]


def test_no_host_profile_unless_asked_for(tmp_path: Path) -> None:
    with host_profile(tmp_path, enabled=False) as lines:
        pass
    assert lines == []
    assert list(tmp_path.iterdir()) == []
