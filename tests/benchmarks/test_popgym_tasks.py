"""MMER as `benchmarks/popgym_tasks.py` reads it from the rows of runs, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jaxrl.config.selection import known_environment
from tests.benchmarks.loading import load


@pytest.fixture(scope="module")
def popgym() -> ModuleType:
    return load("popgym_tasks")


def write(folder: Path, returns: Sequence[float | None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"step": 100 * (i + 1), "episode/return": x} for i, x in enumerate(returns)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_mmer_is_the_mean_of_the_largest_of_each_seed(popgym: ModuleType, tmp_path: Path) -> None:
    # Not the largest of the means, 0.45.
    task = tmp_path / "RepeatFirstEasy"
    write(task / "members" / "seed_0", [None, 0.1, 0.8, 0.2])
    write(task / "members" / "seed_1", [None, 0.4, 0.1, 0.3])
    write(task, [None, 0.25, 0.45, 0.25])
    assert popgym.read(task) == ([0.8, 0.4], 400)
    row = popgym.table(tmp_path).splitlines()[-1]
    assert row == "| `RepeatFirstEasy` | 400 | 0.600 (0.800, 0.400) | 1.000 ± 0.000 |"


def test_a_run_without_members_is_one_seed(popgym: ModuleType, tmp_path: Path) -> None:
    write(tmp_path / "CountRecallEasy", [-1.0, 0.25])
    assert popgym.table(tmp_path).splitlines()[-1] == "| `CountRecallEasy` | 200 | 0.250 | 0.177 ± 0.005 |"


def test_epochs_weigh_iterations_by_their_episodes(popgym: ModuleType) -> None:
    # Three episodes of mean 1 and one of 5; nothing; what is left over makes no epoch.
    returns = np.array([1.0, 5.0, np.nan, np.nan, 9.0])
    found = popgym.epoch_means(returns, np.array([3, 1, 0, 0, 1]), 2)
    np.testing.assert_array_equal(found, [2.0, np.nan])


def test_every_task_beside_the_paper_has_a_known_config(popgym: ModuleType) -> None:
    assert all(known_environment(f"jaxrl:memory/{task}") for task in popgym.GRU)
