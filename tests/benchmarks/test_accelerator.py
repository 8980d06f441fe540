"""benchmarks/accelerator.py: its cases, its page, and a dry run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "accelerator"))

import cases
import page

SCRIPT = str(Path(__file__).parents[2] / "benchmarks" / "accelerator.py")


def test_every_case_has_a_name_of_its_own() -> None:
    on_gpus = list(cases.cases("gpu", ("purejaxrl", "rejax")))
    names = [case.name for case in on_gpus]
    assert len(names) == len(set(names))
    assert {case.network for case in on_gpus} == {"check", "mlp", "cnn", *cases.CORES}
    assert {case.precision for case in on_gpus} == set(cases.PRECISIONS)
    assert {case.command_buffers for case in on_gpus} == set(cases.COMMAND_BUFFERS)
    assert {1024, 131_072} <= {case.num_envs for case in on_gpus}
    assert not [case for case in cases.cases("tpu", ()) if case.command_buffers != "default"]


def test_the_page_says_what_was_measured_and_what_was_not() -> None:
    case = {"env": "cartpole", "network": "mlp", "num_envs": 4096, "precision": "tf32"}
    case |= {"command_buffers": "default", "trainer": "jaxrl"}
    measured = {
        "steps_per_second": 5e7,
        "steps_per_second_range": [4.9e7, 5.1e7],
        "iteration_seconds": 0.0105,
        "rollout_seconds": 0.004,
        "share_of_peak": 0.0251,
        "kernels": 2968,
        "estimate_seconds": [0.0059, 0.0117],
        "compile_seconds": 12.34,
    }
    rows = [
        {"name": "cartpole-mlp", "case": case, "result": measured},
        {"name": "a check", "case": case, "result": {"said": "kernel and scan agree"}},
        {"name": "a hang", "case": case, "result": {"reason": "ended after 90 s"}},
    ]
    machine = {"platform": "gpu", "device": "NVIDIA H100", "devices": 1, "versions": {"jax": "0.10.2"}}
    record = {"command": "python x", "date": "2026-11-22", "seconds": 60.0, "machine": machine, "rows": rows}
    text = page.markdown(record)
    assert "1 x NVIDIA H100 (gpu), 2026-11-22; jax 0.10.2." in text
    assert (
        "| jaxrl | cartpole | mlp | 4,096 | tf32 | default | 50 (49 to 51) | 10.5 | 4, 6.5 | 2.5% | 2,968 "
        "| 5.9 to 11.7 | 12.3 |"
    ) in text
    assert "- a check: kernel and scan agree" in text
    assert "- a hang: no result: ended after 90 s" in text


@pytest.mark.long
def test_a_dry_run(tmp_path: Path) -> None:
    # One case that is measured and one that a CPU refuses: each is one row.
    only = "--only=cartpole-mlp,lstm-kernel"
    command = [
        sys.executable,
        SCRIPT,
        f"--output={tmp_path}",
        "--dry-run",
        "--limit=300",
        "--minutes=30",
        only,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "accelerator.json").read_text())
    results = {row["name"]: row["result"] for row in record["rows"]}
    assert list(results) == ["cartpole-mlp-8-tf32", "cartpole-lstm-kernel-8-tf32"]
    measured = results["cartpole-mlp-8-tf32"]
    assert measured["steps_per_second"] > 0
    assert measured["rollout_seconds"] > 0
    assert measured["flops_per_iteration"] > 0
    assert "on cpu it must be scan" in results["cartpole-lstm-kernel-8-tf32"]["reason"]
    assert "no result" in (tmp_path / "accelerator.md").read_text()


# The page is checked above; weekly is soon enough for a benchmark.
@pytest.mark.long
def test_cases_without_time_are_listed(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, f"--output={tmp_path}", "--dry-run", "--only=gru", "--minutes=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (gru, mingru) = json.loads((tmp_path / "accelerator.json").read_text())["rows"]
    assert "not run" in gru["result"]["reason"]
    assert "not run" in mingru["result"]["reason"]
