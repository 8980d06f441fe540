"""Summaries of device traces: real ones of a program whose phases are known."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from jaxrl.commands.profile_summary import main
from jaxrl.diagnostics.device_trace import read
from jaxrl.metrics import tracing
from jaxrl.metrics.tracing import Traces
from tests.commands.refusals import refused


def work(x: jax.Array) -> jax.Array:
    """An update that takes far longer than its rollout."""

    def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        with tracing.phase("rollout"):
            x = jnp.tanh(x)
        with tracing.phase("update"):
            gradient = jax.grad(lambda x: jnp.sum(jnp.sin(x @ x @ x)))(x)
        return x - 1e-3 * gradient, None

    return jax.lax.scan(body, x, length=10)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with a trace of two iterations and of an evaluation."""
    path = tmp_path_factory.mktemp("run")
    x = jnp.ones((128, 128)) / 128
    program = jax.jit(work).lower(x).compile()
    traces = Traces(path / "tensorboard", window=(0, 2), programs=lambda: [program])
    for iteration in range(3):
        traces.step(iteration, x)
        x = program(x)
        with tracing.host_phase("evaluate"):
            jax.block_until_ready(x)
    return path


@pytest.mark.slow
def test_time_is_split_by_phase(folder: Path) -> None:
    (file,) = folder.rglob("*.xplane.pb")
    summary = read(file)
    assert summary.named
    assert summary.phases["update"] > summary.phases["rollout"] > 0
    assert summary.phases["update"] > 0.5 * sum(summary.phases.values())
    assert 0 < summary.busy <= 1
    assert sum(summary.phases.values()) <= summary.threads * summary.seconds
    assert summary.host["evaluate"] > 0
    first = next(x for x in summary.operations if x.phase == "update")
    assert any(x.source.endswith("dot_general") for x in summary.operations)
    # Two iterations of ten steps.
    assert first.count in (20, 21, 22)
    assert first.count % 2 == 0
    assert sum(x.seconds for x in summary.operations) == pytest.approx(sum(summary.phases.values()))


@pytest.mark.slow
def test_prints_operations_and_phases(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile_summary", str(folder), "--top=3"]) == 0
    output = capsys.readouterr().out
    for phase in ("rollout", "update", "evaluate"):
        assert phase in output
    assert main(["profile_summary", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["phases"]["update"] > 0


@pytest.mark.slow
def test_a_trace_without_its_programs_is_still_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = folder.rglob("*.xplane.pb")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    assert main(["profile_summary", str(tmp_path)]) == 0
    assert "no *.hlo.txt beside the trace" in capsys.readouterr().out


class _Event(SimpleNamespace):
    """Warns when its numbers are read, as Python does when jaxlib 0.11.2 makes their type."""

    @property
    def stats(self) -> Iterator[tuple[str, str]]:
        warnings.warn("builtin type stats has no __module__ attribute", DeprecationWarning, stacklevel=2)
        yield "hlo_op", "add.1"


def test_what_python_warns_of_when_jaxlib_makes_its_types_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = _Event(name="add.1", start_ns=1e9, duration_ns=2e9)
    trace = SimpleNamespace(planes=[SimpleNamespace(lines=[SimpleNamespace(events=[event])])])
    monkeypatch.setattr(jax.profiler, "ProfileData", SimpleNamespace(from_file=lambda name: trace))
    file = tmp_path / "x.xplane.pb"
    file.touch()
    assert [(x.name, x.seconds, x.count) for x in read(file).operations] == [("add.1", 2.0, 1)]
    with pytest.raises(DeprecationWarning):
        list(event.stats)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one folder"),
        (["a", "b"], "name one folder"),
        (["/nowhere"], "is no folder"),
        (["--tip=3", "."], "unknown flag `--tip=3`"),
        (["--top=0", "."], "--top"),
    ],
)
def test_bad_argument(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "profile-summary", *arguments)


def test_a_folder_without_a_trace_says_how_to_take_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile_summary", str(tmp_path)]) == 2
    assert "--config.profile.steps=N, or send SIGUSR1" in capsys.readouterr().err
    (tmp_path / "x.xplane.pb").write_bytes(b"no trace")
    assert main(["profile_summary", str(tmp_path)]) == 2
    assert "x.xplane.pb" in capsys.readouterr().err
