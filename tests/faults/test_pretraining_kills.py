"""A clone whose training is killed ends as one that was left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl import commands
from tests.faults.harness import Run, differences, killed_and_resumed

UPDATES = 1500


@pytest.mark.long
def test_killed_it_is_the_same_clone(tmp_path: Path) -> None:
    record = ["prepare-data", "--env=gymnax:CartPole-v1", "--episodes=20", f"--output={tmp_path / 'data'}"]
    assert commands.run(["jaxrl", *record]) == 0
    options = [
        "--config.algorithm=behavior_cloning",
        f"--config.behavior_cloning.data={tmp_path / 'data'}",
        "--config.behavior_cloning.patience=0",
        "--config.normalize.rewards=False",
        f"--config.stop.steps={UPDATES}",
        "--config.checkpoint.every_steps=100",
        "--config.log.every_steps=100",
        "--config.evaluate.every_steps=500",
    ]
    straight, run = Run(tmp_path / "straight", *options), Run(tmp_path / "run", *options)
    try:
        outcome = killed_and_resumed(straight, run, lambda: run.checkpoints and run.newest() >= 0.4 * UPDATES)
        assert "resumed from the checkpoint" in outcome.stdout
        assert differences(run, straight) == []
    finally:
        straight.end()
        run.end()
