"""The registry of models, on a disk and in buckets: versions, stages, rollback, damage, kills."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError
from jaxrl.runs.registry import Gate, GateClosed, ModelRegistry
from tests.runs.registry.folders import model
from tests.runs.storage.gcs_server import GcsServer, Request

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    server = GcsServer()
    yield server
    server.close()


@pytest.fixture(params=["local", "gs"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> str:
    if request.param == "local":
        return str(tmp_path / "models")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.buckets["models"] = {}
    return "gs://models/all"


@pytest.mark.slow
def test_versions_count_up_and_stages_move(url: str, tmp_path: Path) -> None:
    registry = ModelRegistry(url, writable=True)
    assert registry.names() == []
    for i in (1, 2, 3):
        assert registry.publish("walker", model(tmp_path / f"new{i}", f"content {i}")) == i
    assert registry.publish("other", model(tmp_path / "other", "x")) == 1
    # Publishing moves nothing.
    assert (registry.names(), registry.stages("walker")) == (["other", "walker"], {})
    assert registry.promote("walker", "latest", 3) is None
    assert [registry.promote("walker", "production", i) for i in (1, 2, 3)] == [None, 1, 2]
    again = ModelRegistry(url)
    assert again.stages("walker") == {"latest": 3, "production": 3}
    assert again.record("walker", again.resolve("walker", "2")) == {"content": "content 2"}
    assert again.verify("walker", 2) == []
    with again.fetch("walker", 1) as folder:
        assert (folder / "arrays_0.bin").read_bytes() == b"content 1" * 1000


@pytest.mark.slow
def test_rollback_goes_back_step_by_step(url: str, tmp_path: Path) -> None:
    registry = ModelRegistry(url, writable=True)
    for i in (1, 2, 3):
        registry.publish("walker", model(tmp_path / f"new{i}", str(i)))
    for i in (1, 2, 1):
        registry.promote("walker", "staging", i)
    assert [registry.rollback("walker", "staging") for _ in range(2)] == [(2, 1), (1, 2)]
    with pytest.raises(ConfigError, match="staging of walker has no version before 1"):
        registry.rollback("walker", "staging")
    registry.promote("walker", "staging", 3)
    registry.promote("walker", "staging", 3)  # does not count as a move
    assert registry.rollback("walker", "staging") == (1, 3)


def test_wrong_names_are_one_line(url: str, tmp_path: Path) -> None:
    registry = ModelRegistry(url, writable=True)
    registry.publish("walker", model(tmp_path / "new", "1"))
    for asked, said in (
        (lambda: registry.resolve("walkr"), "did you mean `walker`"),
        (lambda: registry.resolve("walker", "2"), "has no version 2; it has 1"),
        (lambda: registry.resolve("walker", "prod"), "must be one of latest, staging, production"),
        (lambda: registry.resolve("walker", "staging"), "no version of walker is staging"),
        (lambda: registry.resolve("../walker"), "must be at most 64"),
        (lambda: registry.publish("a/b", tmp_path / "new"), "must be at most 64"),
        (lambda: registry.promote("walker", "production", 7), "has no version 7"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            asked()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / "arrays_1.bin").write_bytes(b"other"), "arrays_1.bin: not as it was deployed"),
        (lambda f: (f / "arrays_1.bin").unlink(), "arrays_1.bin: missing"),
        (lambda f: (f / "policy.onnx").write_bytes(b"x"), "policy.onnx: not listed"),
        (lambda f: (f / "checksums.json").write_text("{"), "checksums.json"),
        (lambda f: ((f / "arrays_0.bin").unlink(), (f / "arrays_0.bin").symlink_to("/etc/passwd")), "link"),
    ],
)
def test_a_damaged_version_is_found_and_takes_no_stage(
    harm: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    registry = ModelRegistry(str(tmp_path / "models"), writable=True)
    for i in (1, 2):
        registry.publish("walker", model(tmp_path / f"new{i}", str(i)))
    registry.promote("walker", "production", 1)
    harm(tmp_path / "models/walker/versions/2")
    assert any(said in line for line in registry.verify("walker", 2))
    with pytest.raises(RunError, match="version 2 is damaged, production was not moved"):
        registry.promote("walker", "production", 2)
    assert registry.stages("walker")["production"] == 1
    harm(tmp_path / "new1")
    with pytest.raises(RunError, match="damaged and was not deployed"):
        registry.publish("walker", tmp_path / "new1")


@pytest.mark.parametrize("file", ["checksums.json", "model.json", "arrays_0.bin"])
def test_files_from_anyone_are_damage_at_once(file: str, tmp_path: Path) -> None:
    registry = ModelRegistry(str(tmp_path / "models"), writable=True)
    registry.publish("walker", model(tmp_path / "new", "1"))
    place = tmp_path / "models/walker/versions/1" / file
    place.unlink()
    with place.open("wb") as stream:
        stream.truncate(40 * 2**30)  # sparse
    assert registry.verify("walker", 1)
    place.unlink()
    os.mkfifo(place)
    assert registry.verify("walker", 1) or file == "checksums.json"
    place.unlink()
    for text in (
        "[" * 100_000,
        '{"files": 3}',
        '{"files": {"../../../x": {"size": 1}, "a": null}}',
        "null",
        "\xff",
    ):
        place.write_text(text, encoding="latin-1")
        assert registry.verify("walker", 1)
    if file == "model.json":
        with pytest.raises(RunError, match="cannot be read"):
            registry.record("walker", 1)
    # Links and history that say nonsense.
    link = tmp_path / "models/walker/production"
    for target in ("versions/../../../etc", "/etc", "versions/99999999999999", "versions/2"):
        link.symlink_to(target)
        assert registry.stages("walker") == {}
        link.unlink()
    link.write_text("no link")
    assert registry.stages("walker") == {}


def test_a_kill_at_any_moment_leaves_a_whole_model(tmp_path: Path) -> None:
    """Kills at each change of a file in turn, until one deployment gets through; each finds what was left."""
    root = tmp_path / "models"
    registry = ModelRegistry(str(root), writable=True)
    registry.publish("walker", model(tmp_path / "first", "0"))
    registry.promote("walker", "production", 1)
    program = [sys.executable, "-m", "tests.runs.registry.killed_deployments"]
    codes, seen = [], [1]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, cwd=ROOT, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for nth in range(1, 100):
            new = model(tmp_path / f"new{nth}", str(nth), files=1)
            process.stdin.write(f"{nth}\t{root}\t{new}\n")
            process.stdin.flush()
            codes.append(int(process.stdout.readline()))
            versions, now = registry.versions("walker"), registry.resolve("walker", "production")
            # The version of before, or the new one, and each is whole.
            assert now in (seen[-1], versions[-1])
            for number in versions[len(seen) - 1 :]:
                assert registry.verify("walker", number) == []
            seen.append(now)
            if codes[-1] == 0:
                break
        process.stdin.close()
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert len(codes) > 15
    # Moving the link is the last change. Some kills came before the new version was there, some after.
    assert (set(seen[:-1]), seen[-1]) == ({1}, versions[-1])
    assert 3 < len(versions) < len(codes)
    assert registry.rollback("walker", "production") == (1, versions[-1])
    inside = {path.name for path in (root / "walker/versions").iterdir()}
    assert inside == {str(n) for n in registry.versions("walker")}  # nothing half-written is left


@pytest.mark.slow
def test_a_writer_that_dies_leaves_a_whole_model_in_a_bucket(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its nth write on a deployment is refused everything, as if it were gone."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.buckets["dying"] = {}
    registry = ModelRegistry("gs://dying/m", writable=True)
    registry.publish("walker", model(tmp_path / "first", "0"))
    registry.promote("walker", "production", 1)
    seen, survived = [1], 0
    for nth in range(1, 20):
        writes = itertools.count(1)
        gone = False

        def rule(request: Request, nth: int = nth, writes: Iterator[int] = writes) -> int | None:
            nonlocal gone
            gone = gone or (request.writes and next(writes) >= nth)
            return 403 if gone else None

        new = model(tmp_path / f"new{nth}", str(nth), files=1)
        monkeypatch.setattr(server, "rule", rule)
        try:
            number = registry.publish("walker", new)
            registry.promote("walker", "production", number)
        except (RunError, OSError):
            survived += 1
        monkeypatch.setattr(server, "rule", lambda request: None)
        now = registry.resolve("walker", "production")
        assert now in (seen[-1], registry.versions("walker")[-1])
        assert registry.verify("walker", now) == []
        seen.append(now)
        if not gone:
            break
    assert not gone
    assert survived == len(seen) - 2 == 6  # claim, three files, history, pointer
    assert set(seen[:-1]) == {1}


def test_two_deployments_to_a_bucket_do_not_share_a_version(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.buckets["shared"] = {}
    # Another one, which a kill ended: it had taken the number, and written all but the checksums.
    server.put("shared", "m/walker/versions/1/.claim", b"taken\n")
    server.put("shared", "m/walker/versions/1/model.json", b"{}")
    registry = ModelRegistry("gs://shared/m", writable=True)
    assert registry.versions("walker") == []
    assert registry.publish("walker", model(tmp_path / "new", "1")) == 2
    # One that takes number 3 after this one has looked.
    numbers = registry._numbers
    monkeypatch.setattr(registry, "_numbers", lambda name: [n for n in numbers(name) if n < 2])
    assert registry.publish("walker", tmp_path / "new") == 3
    assert [registry.verify("walker", n) for n in (2, 3)] == [[], []]


def test_gates() -> None:
    gates = Gate.parse("success_rate>=0.9, mean > 400")
    assert gates == (Gate("success_rate", ">=", 0.9), Gate("mean", ">", 400.0))
    for gate in gates:
        gate.require({"success_rate": 0.9, "mean": 400.5})
    with pytest.raises(GateClosed, match="success_rate>=0.9 is closed: success_rate is 0.89") as caught:
        gates[0].require({"success_rate": 0.89})
    assert caught.value.exit_code == 3
    with pytest.raises(GateClosed, match="mean is 400"):
        gates[1].require({"mean": 400.0})
    with pytest.raises(GateClosed, match="is nan"):
        Gate("mean", "<", 1.0).require({"mean": float("nan")})
    with pytest.raises(GateClosed, match="is inf"):
        gates[1].require({"mean": float("inf")})
    with pytest.raises(ConfigError, match="did you mean `mean`"):
        Gate("meen", "<", 1.0).require({"mean": 1.0})
    for text in ("mean", "mean>=", ">=1", "mean>=x", "mean>=nan", "mean==1", ""):
        with pytest.raises(ConfigError, match=r"must be METRIC>=NUMBER"):
            Gate.parse(text)
