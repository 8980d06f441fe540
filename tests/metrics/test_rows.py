"""What is logged of sums, and their way through a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from jaxrl.metrics import rows
from jaxrl.training.iteration import METRICS, no_metrics


def sums(**changes: float) -> dict[str, Any]:
    """Of 4 iterations in which 8 episodes ended."""
    values = dict.fromkeys(METRICS, 0.0) | {"iterations": 4, "ppo/updates": 96}
    values |= {"episode/count": 8, "episode/return": 20.0, "episode/length": 100.0, "loss/value": 3.0}
    values |= {"ppo/skipped": 5}
    values |= {name.replace("__", "/"): x for name, x in changes.items()}
    return {name: np.asarray(values[name], empty.dtype) for name, empty in no_metrics().items()}


def test_means_are_over_iterations_or_episodes_and_counts_are_no_means() -> None:
    row = rows.averages(sums(), skips=True)
    assert row["loss/value"] == 0.75
    assert (row["episode/return"], row["episode/length"]) == (2.5, 12.5)
    assert row["episode/count"] == 8
    assert row["ppo/skipped"] == 5
    assert row["ppo/updates"] == 96  # since the start of the run
    assert row.keys() == set(METRICS)
    assert all(type(x) is float for x in row.values())


def test_no_episode_has_no_mean() -> None:
    row = rows.averages(sums(episode__count=0, episode__return=0, episode__length=0), skips=False)
    assert row.keys() == set(METRICS) - {"episode/return", "episode/length", "ppo/skipped"}
    assert row["episode/count"] == 0


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-45, 3.4e38, -0.0, 16777217.0])
def test_sums_survive_json_bit_for_bit(value: float) -> None:
    # A log interval that a resume goes on with must add up to what it would have without.
    before = sums(loss__policy=value, ppo__updates=2**31 - 1)
    after = rows.from_json(json.loads(json.dumps(rows.to_json(before))), no_metrics())
    assert after.keys() == before.keys()
    for name, x in before.items():
        assert (after[name].dtype, after[name].shape) == (x.dtype, ()), name
        assert after[name].tobytes() == x.tobytes(), name


def test_a_metric_that_an_older_checkpoint_lacks_starts_at_zero() -> None:
    stored = rows.to_json(sums())
    del stored["ppo/skipped"]
    stored["of an older version"] = 1.0
    after = rows.from_json(stored, no_metrics())
    assert after["ppo/skipped"] == 0
    assert after.keys() == no_metrics().keys()
