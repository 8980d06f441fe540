"""What is made of N played episodes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.evaluation.result import Result
from jaxrl.rollout.episodes import Episodes


def episodes(returns: list[list[float]], lengths: list[list[int]], played: list[list[int]]) -> Episodes:
    asked = jnp.array(played, bool)
    return Episodes(jnp.array(returns, jnp.float32), jnp.array(lengths, jnp.int32), asked, asked)


def test_statistics_by_hand() -> None:
    # Two environments, the second with one episode less: its empty slot must not count.
    result = Result.of(episodes([[1, 2], [6, -99]], [[10, 20], [60, 99]], [[1, 1], [1, 0]]))
    assert (result.episodes, result.unfinished) == (3, 0)
    assert (result.mean, result.minimum, result.maximum) == (3, 1, 6)
    assert result.std == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert result.mean_length == 30
    assert result.std_length == pytest.approx(np.sqrt((400 + 100 + 900) / 2))


def test_confidence_interval() -> None:
    returns = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    ones = np.ones(returns.shape, int).tolist()
    result = Result.of(episodes(returns.tolist(), ones, ones))
    expected = stats.norm.interval(0.95, returns.mean(dtype=np.float64), stats.sem(returns.ravel(), ddof=1))
    np.testing.assert_allclose([result.low, result.high], expected, rtol=1e-5)


def test_one_episode_has_no_spread() -> None:
    result = Result.of(episodes([[4]], [[2]], [[1]]))
    assert (result.mean, result.std, result.low, result.high) == (4, 0, 4, 4)
    assert (result.mean_length, result.std_length) == (2, 0)


def test_unfinished_episodes_are_counted_among_the_played() -> None:
    played = jnp.array([[True, True], [True, False]])
    finished = jnp.array([[True, False], [False, False]])
    zeros = jnp.zeros((2, 2))
    assert Result.of(Episodes(zeros, zeros.astype(int), played, finished)).unfinished == 2


def test_large_returns_keep_their_spread() -> None:
    # Statistics are taken in float64: float32 cannot tell 2e7 from 2e7 + 1 once they are squared or summed.
    result = Result.of(episodes([[2e7], [2e7 + 2]], [[1], [1]], [[1], [1]]))
    assert result.mean == 2e7 + 1
    assert result.std == pytest.approx(np.sqrt(2))
