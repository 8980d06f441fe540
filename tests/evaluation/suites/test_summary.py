"""The numbers of a suite, from episodes written down by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from jaxrl.evaluation.suites.levels import Outcomes
from jaxrl.evaluation.suites.summary import metrics, summarize

# Four episodes; the one with a small cost was not safe.
LEVEL = Outcomes(
    score=np.array([1.0, 2.0, 3.0, 6.0]),
    length=np.array([10.0, 20.0, 30.0, 40.0]),
    normalized=np.array([0.25, 0.5, 0.75, 1.0]),
    finished=np.array([True, True, True, False]),
    success=np.array([True, False, True, True]),
    cost=np.array([0.0, 0.5, 0.0, 3.0]),
)


def test_numbers_of_a_level() -> None:
    found = summarize([LEVEL])
    assert (found.episodes, found.unfinished) == (4, 1)
    assert (found.return_mean, found.length, found.steps_to_completion) == (3.0, 25.0, 80 / 3)
    assert found.return_std == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3))
    assert (found.success_rate, found.efficiency) == (0.75, 0.75 / 0.625)
    assert (found.cost, found.safety) == (0.875, 0.5)
    # Wilson 1927: where the rate p is 1.96 standard errors sqrt(p (1 - p) / n) from 3/4.
    for p in (found.success_low, found.success_high):
        assert p is not None
        assert abs(p - 0.75) == pytest.approx(1.959964 * math.sqrt(p * (1 - p) / 4), rel=1e-6)


def test_a_rate_is_over_all_levels_or_there_is_none() -> None:
    silent = dataclasses.replace(LEVEL, success=None, cost=None)
    found = summarize([LEVEL, silent])
    assert found.episodes == 8
    assert (found.success_rate, found.success_low, found.efficiency) == (None, None, None)
    assert (found.cost, found.safety) == (None, None)
    row = metrics({"a": [LEVEL], "b": [silent]})
    assert row["eval/a/success_rate"] == 0.75
    assert not {"eval/b/success_rate", "eval/all/success_rate", "eval/all/safety"} & row.keys()
    assert row["eval/all/return"] == 3.0
