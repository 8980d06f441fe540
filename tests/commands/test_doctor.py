"""`jaxrl doctor`: a healthy machine, broken ones, and the advice for each."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.commands import doctor
from jaxrl.diagnostics import machine_health
from jaxrl.parallel.cpu_devices import available_cores
from tests.commands.refusals import refused
from tests.runs.storage.gcs_server import GcsServer

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl", "doctor", "--json", *arguments],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return done.returncode, {finding["check"]: finding for finding in found["findings"]}


@pytest.mark.slow
def test_this_machine_trains(tmp_path: Path) -> None:
    code, found = run(f"--workdir={tmp_path}")
    assert code == 0
    assert set(found) == set("python versions driver memory disk cache devices training".split()) | {
        "xla flags"
    }
    assert found["training"]["status"] == "ok"
    assert f"{available_cores()} x cpu" in found["devices"]["found"]  # as training says


@pytest.mark.slow
def test_a_flag_that_xla_does_not_know_is_named() -> None:
    code, found = run(XLA_FLAGS="--xla_no_such_flag=1")
    assert code == 1
    assert found["devices"]["status"] == "broken"
    assert "xla_no_such_flag" in found["devices"]["found"]
    assert "remove the flag from XLA_FLAGS" in found["devices"]["advice"]


# That training says so: tests/commands/test_bad_input.py.
@pytest.mark.long
def test_a_backend_that_is_not_there() -> None:
    code, found = run(JAX_PLATFORMS="cuda")
    assert code == 1
    assert "unset JAX_PLATFORMS" in found["devices"]["advice"]


def test_settings_that_cost_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setenv("JAX_DISABLE_JIT", "1")
    finding = machine_health.xla_settings()
    assert finding.status == "warning"
    assert "code is not optimised" in finding.found
    assert "JAX_DISABLE_JIT: nothing is compiled" in finding.found


def test_another_package_jaxrl_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    information = tmp_path / "jaxrl_other-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: jaxrl-other\nVersion: 0.1\n")
    (information / "RECORD").write_text("jaxrl/agents/sac.py,,\n")
    # Python 3.12 and later know of files that are there alone.
    module = tmp_path / "jaxrl" / "agents" / "sac.py"
    module.parent.mkdir(parents=True)
    module.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    first, _ = machine_health.versions()
    assert (first.status, first.advice) == ("broken", "pip uninstall jaxrl-other")
    assert "jaxrl-other installs a package `jaxrl` too" in first.found


def test_packages_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # It reads what every package installed.
    monkeypatch.setattr(machine_health, "others_of_the_same_name", tuple)
    assert [f.status for f in machine_health.versions()] == ["ok"]
    real = importlib.metadata.version
    other = {"jaxlib": "0.4.1", "jax-cuda12-plugin": "0.10.1"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: other.get(name) or real(name))
    found = [finding.found for finding in machine_health.versions()]
    assert any(text.startswith("jax needs jaxlib") and text.endswith("installed is 0.4.1") for text in found)
    assert "jax-cuda12-plugin 0.10.1 does not fit jaxlib 0.4.1" in found


def test_a_folder_that_cannot_be_written() -> None:
    finding = machine_health.disk("disk", "/proc/1/runs")
    assert (finding.status, bool(finding.advice)) == ("broken", True)


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("FileNotFoundError: b/o", "gcloud storage ls"),
        ("HttpError: Anonymous caller does not have access, 401", "application-default login"),
        ("HttpError: 403 Forbidden", "roles/storage.objectUser"),
        ("TimeoutError", "check the network"),
    ],
)
def test_advice_on_buckets(message: str, advice: str) -> None:
    assert advice in machine_health._bucket_advice(message)


def test_a_bucket(gcs: GcsServer) -> None:
    finding = machine_health.bucket_access("gs://runs/mine")
    assert (finding.status, finding.advice) == ("ok", "")
    assert gcs.files("runs") == {}
    missing = machine_health.bucket_access("gs://no-such-bucket")
    assert missing.status == "broken"
    assert "gcloud storage" in missing.advice


def test_a_folder_in_place_of_a_bucket(tmp_path: Path) -> None:
    assert machine_health.bucket_access(str(tmp_path)).status == "ok"
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert machine_health.bucket_access(str(tmp_path / "file")).status == "broken"


def test_findings_are_shown_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_health, "others_of_the_same_name", tuple)
    # A full disk is broken as well.
    room = lambda check, folder: machine_health.HealthFinding(check, "ok", "room")  # noqa: E731
    monkeypatch.setattr(machine_health, "disk", room)
    monkeypatch.setattr(
        machine_health,
        "training",
        lambda: iter([machine_health.HealthFinding("devices", "broken", "none", "buy [one]")]),
    )
    assert doctor.main(["jaxrl doctor"]) == 1
    shown = capsys.readouterr().out
    assert "broken  devices    none" in shown
    assert "-> buy [one]" in shown
    assert "1 broken" in shown


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--bucket=s3://x", "must start with gs://"),
        ("--workdir=gs://x", "must be a local folder"),
        ("here", "is no flag"),
    ],
)
def test_bad_input(argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "doctor", argument)
