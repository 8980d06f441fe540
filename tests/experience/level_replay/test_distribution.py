"""Chances of levels against loops, and by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.level_replay.distribution import (
    draw,
    proportional_weights,
    rank_weights,
    replay_distribution,
)
from tests.experience.level_replay import reference


def test_rank_weights_by_hand():
    # Ranks 2, 1 and 3 at temperature 1; the last place holds nothing.
    score, filled = jnp.array([2.0, 5.0, 1.0, 9.0]), jnp.array([True, True, True, False])
    weights = jax.jit(rank_weights)
    np.testing.assert_allclose(weights(score, filled, 1.0), [1 / 2, 1, 1 / 3, 0])
    np.testing.assert_allclose(weights(score, filled, 0.5), [1 / 4, 1, 1 / 9, 0])


def test_equal_scores_have_equal_chances():
    score = jnp.array([1.0, 3.0, 1.0, 1.0])
    np.testing.assert_allclose(
        jax.jit(rank_weights)(score, jnp.ones(4, bool), 1.0), [13 / 36, 1, 13 / 36, 13 / 36], rtol=1e-6
    )


def test_nothing_is_known_at_first():
    nothing = jnp.zeros(3, bool)
    zeros = jnp.zeros(3)
    np.testing.assert_array_equal(replay_distribution(zeros, zeros, nothing, 0.3), zeros)
    # Scores and ages of 0: every level that is there has the same chance.
    some = jnp.array([True, False, True])
    np.testing.assert_array_equal(replay_distribution(zeros, zeros, some, 0.3), [0.5, 0, 0.5])


@pytest.mark.parametrize("prioritization", ["rank", "proportional"])
@pytest.mark.parametrize(("temperature", "staleness"), [(0.3, 0.3), (1.0, 0.0), (0.1, 1.0)])
def test_chances_are_those_of_loops(prioritization, temperature, staleness):
    rng = np.random.default_rng(3)
    weigh = jax.jit({"rank": rank_weights, "proportional": proportional_weights}[prioritization])
    distribution = jax.jit(replay_distribution)
    for _ in range(5):
        score = rng.normal(size=50).round(1).astype(np.float32)  # some are equal
        filled, age = rng.random(50) < 0.8, rng.integers(0, 9, 50).astype(np.float32)
        found = np.asarray(distribution(weigh(score, filled, temperature), age, filled, staleness))
        plain = reference.chances(
            score[filled].tolist(), age[filled].tolist(), temperature, staleness, prioritization
        )
        np.testing.assert_allclose(found[filled], plain, rtol=2e-4, atol=1e-7)
        assert not found[~filled].any()
        assert float(found.sum()) == pytest.approx(1, abs=1e-5)


def test_draws_follow_the_chances():
    chance = jnp.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    uniform = jnp.arange(1000) / 1000
    np.testing.assert_array_equal(np.bincount(draw(chance, uniform), minlength=6), [0, 250, 0, 500, 250, 0])
    # The largest float32 below 1 leads to the last level that has a chance.
    assert draw(chance, jnp.float32(1 - 2**-24)) == 4
