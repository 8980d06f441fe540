"""Interquartile means, intervals, improvement and profiles, against numbers by hand and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from jaxrl.comparison import statistics

A = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
B = np.array([2.0, 6.0, 5.0, 3.0])


def test_interquartile_mean_by_hand() -> None:
    assert statistics.iqm(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0])) == 4.5
    assert statistics.iqm(np.array([0.0, 10.0]), np.array([4.0, 6.0])) == 5.0  # over all strata together
    assert statistics.iqm(np.array([1.0, 2.0, 6.0])) == 3.0  # of three nothing is cut off


def test_improvement_is_the_statistic_of_mann_and_whitney() -> None:
    expected = stats.mannwhitneyu(A, B).statistic / (len(A) * len(B))
    assert statistics.improvement(A, B) == pytest.approx(expected)
    assert statistics.improvement(np.array([1.0, 2.0]), np.array([2.0])) == 0.25  # a tie counts half


def test_improvement_averages_over_environments() -> None:
    assert statistics.improvement(A, A + 100, B, B) == pytest.approx(
        (statistics.improvement(A, B) + statistics.improvement(A + 100, B)) / 2
    )


def test_profile_counts_runs_above_each_threshold() -> None:
    thresholds = np.array([0.0, 2.0, 8.0, 9.0])
    above = [a > thresholds[:, None] for a in (A, B)]
    np.testing.assert_allclose(statistics.above(*above), [1.0, (3 / 5 + 3 / 4) / 2, 0.1, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strata", "statistic"),
    [
        pytest.param((A,), statistics.iqm, marks=pytest.mark.slow),
        ((A, B), statistics.iqm),
        ((A, B), statistics.improvement),
    ],
)
def test_interval_is_that_of_a_stratified_bootstrap(strata: tuple[np.ndarray, ...], statistic) -> None:
    rng = np.random.default_rng(7)
    drawn = [statistic(*(rng.choice(x, len(x)) for x in strata)) for _ in range(4000)]
    found = statistics.interval(strata, statistic, 4000)
    assert found is not None
    np.testing.assert_allclose(found, np.percentile(drawn, [2.5, 97.5]), atol=0.12 * np.ptp(drawn))


def test_runs_are_drawn_within_their_environment() -> None:
    # Were all ten drawn together, some resamples would hold more of one environment than of the other.
    low, high = statistics.interval((np.zeros(5), np.full(5, 100.0)), statistics.iqm, 500)
    assert low == high == 50.0


def test_intervals_along_a_curve() -> None:
    curves = np.stack([A, A + 10, np.full(5, 7.0)])
    low, high = statistics.interval((curves,), statistics.iqm, 500)
    assert low.shape == high.shape == (3,)
    np.testing.assert_allclose(low[1] - low[0], 10)  # the same runs are drawn at each step
    assert low[2] == high[2] == 7.0


def test_a_single_run_has_no_interval() -> None:
    assert statistics.interval((A, np.array([1.0])), statistics.iqm, 500) is None
