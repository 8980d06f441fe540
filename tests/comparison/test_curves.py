"""Mean curves, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxrl.comparison.statistics import first_reach, mean_curve
from jaxrl.comparison.variants import Variant
from jaxrl.runs.records import Run


def run_of(path: str, points: dict[int, float]) -> Run:
    rows: list[dict[str, Any]] = [
        {"step": step, "eval/return": value, "time/budget_seconds": step / 10}
        for step, value in points.items()
    ]
    return Run(path, {"env.name": "test:Env"}, rows, None)


def test_a_mean_curve_begins_where_all_runs_have_begun() -> None:
    one, other = run_of("a", {10: 0.0, 20: 4.0, 40: 8.0}), run_of("b", {20: 2.0, 30: 6.0})
    curves = {run.path: run.curve("eval/return") for run in (one, other)}
    found = mean_curve(Variant("both", (one, other), {}), curves, resamples=10)
    # At 30 the first is halfway between 4 and 8; at 40 the second keeps its last return.
    assert found.x == [20.0, 30.0, 40.0]
    assert found.value == [3.0, 6.0, 7.0]


@pytest.mark.parametrize(
    ("threshold", "expected"), [(2.0, (10, 1.0)), (3.0, (30, 3.0)), (9.0, (np.inf, np.inf))]
)
def test_a_threshold_is_reached_the_first_time(threshold: float, expected: tuple[float, float]) -> None:
    run = run_of("a", {10: 2.0, 20: 1.0, 30: 3.0, 40: 3.0})
    assert first_reach(run, run.curve("eval/return"), threshold) == expected
