"""Two processes, each with its own share of host environments, train what one trains with all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config import resolve
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.trainer import Trainer
from tests.parallel.multi_process import tiny
from tests.parallel.multi_process.pods import pod, state
from tests.parallel.multi_process.test_local_pod import assert_same
from tests.parallel.multi_process.tiny import STEPS

ITERATIONS = 4
OPTIONS = {
    "env.name": "envpool:CartPole-v1",
    "env.stagger": False,  # so that rollouts are fused from the second on
    "host.overlap": False,
    "stop.steps": ITERATIONS * STEPS,
}


@pytest.mark.long
def test_each_process_steps_its_own_environments(tmp_path: Path) -> None:
    config = tiny.get_config()
    config.update_from_flattened_dict(OPTIONS)
    folder = RunFolder(str(tmp_path / "one"), 100)
    folder.create()
    summary = Trainer(resolve(config, 1), folder, MultiWriter(())).fit()
    folder.checkpoints.wait()
    overrides = [f"--config.{name}={value}" for name, value in OPTIONS.items()]
    with pod(tmp_path / "two", "2", "--devices=2", *overrides) as training:
        assert training.ended() == 0, training.output
    expected = {step: state(tmp_path / "one", step) for step in (2 * STEPS, 4 * STEPS)}
    assert_same(tmp_path / "two", expected)
    shared = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert shared["device"] == "4 x cpu in 2 processes"
    assert shared["eval_episodes"] == summary["eval_episodes"]
    assert abs(shared["eval_return"] - summary["eval_return"]) < 5
