"""`benchmarks/config_table.py`: the table of shipped configs from run folders, with figures by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from jaxrl.config.files import shipped_names
from tests.benchmarks.loading import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return load("config_table")


def run(folder: Path, seconds: float, mean: float) -> None:
    (folder / "evaluations").mkdir(parents=True)
    (folder / "wall.json").write_text(json.dumps({"seconds": seconds, "jobs": 1}))
    for episodes, value in ((10, -1.0), (200, mean)):
        result = {"mean": value, "episodes": episodes}
        (folder / "evaluations" / f"step-5-greedy-{episodes}-seed-0.json").write_text(json.dumps(result))


def test_the_table_has_every_shipped_config(table: ModuleType) -> None:
    experiments = [experiment for experiment, _ in table.rows((ROOT / "docs/results_configs.md").read_text())]
    assert {experiment.partition(":")[0] for experiment in experiments} == set(shipped_names())
    assert "ppo_mlp:gymnax:Acrobot-v1" in experiments


def test_figures_of_runs_replace_those_of_their_rows_alone(table: ModuleType, tmp_path: Path) -> None:
    before = (ROOT / "docs/results_configs.md").read_text()
    run(tmp_path / "ppo" / "seed-0", 11.2, 489.6)
    run(tmp_path / "ppo" / "seed-1", 14.7, 500.0)
    run(tmp_path / "ppo_mlp-gymnax-Acrobot-v1" / "seed-0", 150.0, -78.54)
    run(tmp_path / "ppo_coinrun" / "seed-0", 4000.0, 7.23)
    after = table.rewritten(before, tmp_path)
    old, new = dict(table.rows(before)), dict(table.rows(after))
    changed = {"ppo", "ppo_mlp:gymnax:Acrobot-v1", "ppo_coinrun"}
    assert {name for name in old if old[name] != new[name]} == changed
    assert new["ppo"].endswith("| 11-15 s | 490 to 500 of 500 (2 seeds) |")
    assert new["ppo_mlp:gymnax:Acrobot-v1"] == (
        "| ... `--env=gymnax:Acrobot-v1` | Acrobot | 2 min | -79 (1 seed) |"
    )
    assert new["ppo_coinrun"].endswith("| 1 h | 7.2 (1 seed) |")
    assert len(before.splitlines()) == len(after.splitlines())
    assert table.rewritten(after, tmp_path) == after
