"""The scores of `benchmarks/ppo_details.py`, by hand, and its details beside the fields that exist."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jaxrl.config import check_config
from jaxrl.config.files import load_config
from tests.benchmarks.loading import load


@pytest.fixture(scope="module")
def details() -> ModuleType:
    return load("ppo_details")


def test_scores_leave_out_iterations_without_episodes(details: ModuleType) -> None:
    curves = np.array([[np.nan, 2.0, 4.0, 6.0], [1.0, 1.0, 1.0, 5.0]])
    np.testing.assert_allclose(details.scores(curves), [4.0, 2.0])
    np.testing.assert_allclose(details.scores(curves, 0.5), [5.0, 3.0])


def test_details_are_sorted_and_compared_with_the_same_seed(details: ModuleType, tmp_path: Path) -> None:
    curves = {
        "as shipped": [[1.0], [2.0], [3.0]],
        "better": [[2.0], [3.0], [4.0]],
        "worse": [[1.5], [1.0], [0.0]],
    }
    for name, values in curves.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "curves": values}))
    rows = details.table(tmp_path).splitlines()[2:]
    assert rows == [
        "| better | 3 (2 to 4) | 3 (2 to 4) | 3 of 3 |",
        "| **as shipped** | 2 (1 to 3) | 2 (1 to 3) |  |",
        "| worse | 1 (0 to 1.5) | 1 (0 to 1.5) | 1 of 3 |",
    ]


def test_every_detail_changes_the_config_that_it_is_said_to_change(details: ModuleType) -> None:
    for task in details.TASKS.values():
        shipped = load_config(task.config)
        shipped.update_from_flattened_dict(dict(task.fields))
        for detail in task.details:
            changed = load_config(task.config)
            changed.update_from_flattened_dict({**task.fields, **detail.fields})
            assert check_config(changed) != check_config(shipped), (task.config, detail.name)
