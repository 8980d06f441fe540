"""Curves of long and growing files, bands of seeds, and the filter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from jaxrl.diagnostics.dashboard.collection import MetricSeries, band
from jaxrl.diagnostics.dashboard.run_view import matches
from jaxrl.runs.records import Run


def write(file: Path, steps: range, metric: str = "loss/value") -> None:
    with file.open("a") as stream:
        for step in steps:
            stream.write(json.dumps({"step": step, "time": 1.0, metric: 2.0 * step}) + "\n")


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    series = MetricSeries(epath.Path(tmp_path), "loss/value")
    write(file, range(1, 4))
    write(file, range(4, 6), "eval/return")
    np.testing.assert_array_equal(series.poll(), [[1, 2, 3], [2, 4, 6]])
    write(file, range(6, 7))
    with file.open("a") as stream:
        stream.write('{"step": 7, "loss/value": 14')  # not written to its end yet
    np.testing.assert_array_equal(series.poll()[0], [1, 2, 3, 6])
    file.unlink()
    write(file, range(8, 9))
    np.testing.assert_array_equal(series.poll()[0], [8])


def test_a_long_file_keeps_few_points_spread_over_all_of_it(tmp_path: Path) -> None:
    series = MetricSeries(epath.Path(tmp_path), "loss/value")
    for start in range(0, 30_000, 10_000):
        write(tmp_path / "metrics.jsonl", range(start, start + 10_000))
        steps, values = series.poll()
        assert len(steps) <= 4000
        assert steps[0] == 0
        assert steps[-1] >= start + 9_980
        np.testing.assert_array_equal(values, 2 * steps)
    assert set(np.diff(steps)) == {8.0}  # 30,000 rows: halved at 4,000, 8,000 and 16,000


def test_stages_end_where_all_rows_say_so(tmp_path: Path) -> None:
    """As `Run` finds it in all rows, though most lines are not parsed, and the file grows."""
    rng = np.random.default_rng(0)
    file, rows, series = tmp_path / "metrics.jsonl", [], MetricSeries(epath.Path(tmp_path), "loss/value")
    stages = {"stage": 1, "curriculum/stage": 1}
    for step in range(10, 400, 10):
        for name in stages:
            stages[name] += int(rng.random() < 0.15)
        row = {"step": step, "time": 1.0, "loss/value": 1.0}
        row |= {name: x for name, x in stages.items() if rng.random() < 0.8}
        row |= {"curriculum/steps": int(rng.integers(0, 9))} if "curriculum/stage" in row else {}
        rows.append(row)
        with file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        if step % 70 == 0:
            series.poll()
            assert sorted(series.stage_ends) == Run("", {}, rows, None).stage_ends
    assert len(series.stage_ends) > 5
    file.unlink()
    write(file, range(1, 3))
    series.poll()
    assert not series.stage_ends  # another run


def test_a_band_is_over_the_seeds_that_are_there() -> None:
    x = np.array([0.0, 10.0])
    found = band([(x, np.array([0.0, 10.0])), (x, np.array([10.0, 40.0])), (np.empty(0), np.empty(0))])
    steps = np.array(found["steps"])
    np.testing.assert_allclose(found["mean"], 5 + 2 * steps)
    np.testing.assert_allclose(found["low"], steps)
    np.testing.assert_allclose(found["high"], 10 + 3 * steps)
    later = band([(x, np.array([0.0, 10.0])), (x + 5, np.array([100.0, 100.0]))])
    assert later["steps"][0] == 0
    assert later["steps"][-1] == 15
    assert (later["low"][0], later["high"][0]) == (0.0, 0.0)
    assert (later["low"][-1], later["high"][-1]) == (100.0, 100.0)
    assert band([])["steps"] == []


ROW = {
    "name": "a/b",
    "env": "gymnax:CartPole-v1",
    "algorithm": "ppo",
    "state": "running",
    "step": 500,
    "eval": None,
}
CONFIG = {
    "ppo.gamma": 0.99,
    "env.name": "gymnax:CartPole-v1",
    "env.num_envs": 8,
    "network.hidden_sizes": [8, 8],
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", True),
        ("cartpole", True),
        ("cartpole pendulum", False),
        ("state=running step>=500", True),
        ("step>500", False),
        ("ppo.gamma=0.990", True),
        ("gamma>0.9 num_envs<=8", True),
        ("gamma!=0.99", False),
        ("eval>0", False),
        ("hidden_sizes=8,", True),
        ("nothing=3", False),
        ("gamma>x", False),
        ("=>", False),
    ],
)
def test_filter(query: str, expected: bool) -> None:
    assert matches(query, ROW, CONFIG) is expected
