"""benchmark_metrics.json: written by runs with a budget in seconds, and by no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrl.runs import records
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import benchmark_metrics, run
from tests.training.test_trainer import STEPS, tiny_config


def trained(folder: Path, **changes: Any) -> Path:
    log = {"log.every_steps": 10 * STEPS, "log.writers": ("jsonl",)}
    assert run(tiny_config(200, **log, **changes), str(folder), Interruption()).exit_code == 0
    return folder / "benchmark_metrics.json"


@pytest.mark.slow
def test_timed_run_says_what_its_time_has_bought(tmp_path: Path) -> None:
    found = json.loads(trained(tmp_path, **{"stop.seconds": 600.0}).read_text())
    made = records.read(str(tmp_path))
    assert made.summary is not None
    assert (found["timesteps"], found["stop_reason"]) == (200 * STEPS, "steps")
    assert found["fps"] == made.summary["steps_per_second"]
    assert found["eval_return"] == made.summary["eval_return"]
    assert found["duration"] == pytest.approx(made.seconds, abs=0.1)
    assert found["peak_memory_bytes"]["host"] > 1e7
    steps, returns = made.curve("episode/return")
    assert [point["timesteps"] for point in found["curve"]] == list(steps)
    assert [point["mean_return"] for point in found["curve"]] == list(returns)
    assert found["mean_return"] == returns[-1]
    seconds = [point["seconds"] for point in found["curve"]]
    assert seconds == sorted(seconds)


@pytest.mark.slow
def test_run_without_a_clock_writes_none(tmp_path: Path) -> None:
    assert not trained(tmp_path).exists()


def test_run_that_a_signal_ended_has_what_it_logged() -> None:
    row = {"step": 64, "episode/return": 3.0, "time/steps_per_second": 31.7, "time/budget_seconds": 2.0}
    found = benchmark_metrics({"stop_reason": "SIGTERM", "steps": 80}, 2.5, [row, {"step": 64}])
    assert (found["timesteps"], found["duration"], found["fps"]) == (80, 2.5, 32)
    assert (found["mean_return"], found["eval_return"]) == (3.0, None)
    assert found["curve"] == [{"timesteps": 64, "seconds": 2.0, "mean_return": 3.0}]
    assert benchmark_metrics({"stop_reason": "SIGTERM", "steps": 8}, 0.0, [])["fps"] is None
