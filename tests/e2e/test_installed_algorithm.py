"""An algorithm, an encoder and an environment that an installed package registers, used as if built in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests import processes
from tests.config.packages import install

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GROUPS = {
    "jaxrl.algorithms": {"reinforce": "mine.reinforce:Reinforce"},
    "jaxrl.networks": {"encoder.of_mine": "mine.residual_network:residual"},
    "jaxrl.environments": {"mine:Docking": "mine.docking:Docking"},
}
TINY = (
    "--config.algorithm=reinforce --env=mine:Docking --config.network.encoder=of_mine --config.num_devices=1 "
    "--config.env.num_envs=8 --config.reinforce.rollout_length=16 --config.network.hidden_sizes=8, "
    "--config.evaluate.episodes=4 --config.checkpoint.every_steps=256 --config.log.writers=jsonl"
).split()


@pytest.fixture
def jaxrl(tmp_path: Path) -> object:
    """Runs a command where the package is installed, and returns what it printed."""
    package = tmp_path / "site" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("reinforce", "residual_network", "docking"):
        shutil.copy(ROOT / "examples" / f"{name}.py", package)
    install(package.parent, "mine", GROUPS)
    paths = os.pathsep.join((str(package.parent), str(ROOT)))

    def run(*words: str) -> str:
        found = processes.succeed("-m", "jaxrl", *words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths})
        return found.stdout

    return run


@pytest.mark.long
def test_they_are_used_like_built_in_ones(jaxrl, tmp_path: Path) -> None:
    assert "reinforce.num_minibatches" in jaxrl(
        "train", "ppo_mlp", "--config.algorithm=reinforce", "--help=all"
    )
    assert "c.reinforce.rollout_length = 16" in jaxrl("train", "ppo_mlp", *TINY, "--print-config")
    jaxrl("train", "ppo_mlp", *TINY, "--config.stop.steps=512", "--workdir=one")
    # A run folder of installed names needs no `--trust`.
    jaxrl("train", "--resume=one", "--config.stop.steps=1024")
    rows = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert max(row["step"] for row in rows) == 1024
    assert any("loss/policy" in row for row in rows)
    assert "episodes" in jaxrl("evaluate", "one", "--episodes=4")
    jaxrl(
        "train", "ppo_mlp", *TINY, "--config.stop.steps=512", "--config.population.seeds=2", "--workdir=two"
    )
