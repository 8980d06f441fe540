"""`jaxrl benchmark`: what it writes of a small config."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from jaxrl.commands.benchmark import main
from jaxrl.diagnostics import throughput
from tests.commands.refusals import refused

ROOT = Path(__file__).parents[2]
SMALL = [
    "--config.network.hidden_sizes=8",
    "--config.env.num_envs=8",
    "--config.ppo.rollout_length=8",
    "--config.ppo.num_epochs=1",
    "--config.num_devices=1",
    "--config.log.every_steps=64",
    "--config.log.layers=false",
]


@pytest.mark.slow
def test_times_a_config(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throughput, "_MATMUL_SIZE", 512)  # of 2048 they take longer than all the rest
    monkeypatch.setattr(throughput, "_PAIRS", 2)
    arguments = [f"--config={ROOT}/configs/ppo_mlp.py", *SMALL, "--seconds=0.3", f"--workdir={tmp_path}"]
    assert main(["jaxrl benchmark", *arguments]) == 0
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "throughput.json").read_text())
    low, high = found["steps_per_second_range"]
    assert 0 < low <= found["steps_per_second"] <= high
    assert len(found["windows"]) == 10
    seconds = found["seconds_per_iteration"]
    assert seconds["total"] == pytest.approx(64 / found["steps_per_second"])
    assert seconds["rollout"] + seconds["update"] == pytest.approx(seconds["total"])
    assert seconds["host"] >= 0
    assert found["compile_seconds"] > 0
    memory = found["peak_memory_bytes"]
    assert memory["host"] > 1e8
    assert memory["program"] > 0
    assert memory["device"] is None
    matmul = found["matmul"]
    assert 0 < matmul["fraction"] < 1
    assert matmul["fraction"] == pytest.approx(found["steps_per_second"] / matmul["bound"])
    # Two layers of 4 x 8 and two heads take about 200 forward; a forward pass and one epoch are four of them.
    assert 4 * 100 < matmul["flops_per_step"] < 4 * 1000
    assert found["hardware"]["cores"] >= 1
    assert found["hardware"]["memory_bytes"] > 1e9
    assert found["hardware"]["devices"].endswith("x cpu")
    assert found["versions"]["jax"]
    assert found["config"]["env"]["num_envs"] == 8
    assert math.isfinite(found["save"]["stall_seconds"])
    assert "steps per second" in shown
    assert "the loop of a run, which logs, adds" in shown
    low, high = found["host_share_range"]
    assert max(0, low) <= seconds["host"] / seconds["total"] <= max(0, high)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "`--config` is missing"),
        ([f"--config={ROOT}/configs/ppo.py", "--seconds=0"], "seconds"),
        ([f"--config={ROOT}/configs/ppo.py", "--config.ppo.gama=1"], "gama"),
        ([f"--config={ROOT}/configs/ppo.py", f"--workdir={ROOT}/README.md"], "is a file"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "benchmark", *arguments)
