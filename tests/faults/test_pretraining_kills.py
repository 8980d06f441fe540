"""A clone whose training is killed twice ends as one that was left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.harness import ROOT, Run, differences

UPDATES = 3000


@pytest.mark.slow
def test_killed_twice_it_is_the_same_clone(tmp_path: Path) -> None:
    record = [sys.executable, "-m", "jaxrl", "prepare-data", "--env=gymnax:CartPole-v1", "--episodes=20"]
    subprocess.run([*record, f"--output={tmp_path / 'data'}"], cwd=ROOT, check=True, timeout=120)
    options = [
        "--config.algorithm=behavior_cloning",
        f"--config.behavior_cloning.data={tmp_path / 'data'}",
        "--config.behavior_cloning.patience=0",
        "--config.normalize.rewards=False",
        f"--config.stop.steps={UPDATES}",
        "--config.checkpoint.every_steps=200",
        "--config.log.every_steps=200",
        "--config.evaluate.every_steps=1000",
    ]
    straight, run = Run(tmp_path / "straight", *options), Run(tmp_path / "run", *options)
    try:
        assert straight.train().code == 0
        for share in (0.2, 0.6):
            training = run.start()
            training.wait_until(lambda: run.checkpoints and run.newest() >= share * UPDATES)  # noqa: B023
            training.kill()
            assert run.newest() < UPDATES
        assert run.train().code == 0
        assert differences(run, straight) == []
    finally:
        straight.end()
        run.end()
