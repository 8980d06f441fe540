"""Formulas of replay beside plain loops, and what is drawn beside the probabilities that it should have."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import n_step_return
from jaxrl.experience.replay import draws as sampling_draws
from jaxrl.experience.replay import sampling
from jaxrl.experience.replay.replay import counted_steps

GAMMA = 0.9
draw_uniform = jax.jit(sampling.draw_uniform, static_argnums=(2, 3))


def by_hand(reward: Any, terminated: Any, reset: Any, valid: Any) -> tuple[float, int]:
    """(return, steps) of a window of K + 1 rows."""
    total, steps = 0.0, 0
    for k in range(len(reward) - 1):
        if not valid[k] or (reset[k + 1] and not terminated[k]):
            break
        total += GAMMA**k * reward[k]
        steps += 1
        if terminated[k]:
            break
    return total, steps


def test_n_step_returns_of_all_windows() -> None:
    # Every pattern of terminations, first rows and final rows in a window of three steps, sensible or not: an
    # episode of one step, a truncation, an environment that was started again.
    flags = np.array(list(itertools.product([False, True], repeat=12))).T.reshape(3, 4, -1)
    terminated, reset, valid = flags
    reward = np.random.default_rng(0).normal(size=terminated.shape).astype(np.float32)

    @jax.jit
    def compute(reward: jax.Array, *flags: jax.Array) -> tuple[jax.Array, ...]:
        counts = counted_steps(*flags)
        return counts, *n_step_return(reward[:-1], counts, GAMMA)

    counted, total, discount = map(np.asarray, compute(reward, *flags))
    expected = np.zeros_like(total)
    for n in range(terminated.shape[1]):
        expected[n], steps = by_hand(reward[:, n], terminated[:, n], reset[:, n], valid[:, n])
        assert counted[:, n].tolist() == [k < steps for k in range(3)]
        assert discount[n] == pytest.approx(GAMMA**steps)
    np.testing.assert_allclose(total, expected, atol=1e-6)


def test_rewards_that_do_not_count_may_be_anything() -> None:
    total, _ = n_step_return(jnp.array([[1.0], [jnp.nan]]), jnp.array([[True], [False]]), GAMMA)
    assert float(total[0]) == 1.0


def test_beta_rises_to_one() -> None:
    beta_at = jax.jit(lambda draws: sampling_draws.beta_at(draws, 0.4, 100))
    found = [float(beta_at(np.int32(d))) for d in (0, 50, 100, 1000)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0], rtol=1e-6)


def test_importance_weights() -> None:
    p = np.array([0.5, 0.25, 0.0, 1e-9], np.float32)
    found = jax.jit(sampling_draws.importance)(p, np.float32(10.0), np.float32(0.7))
    expected = [(10 * x) ** -0.7 if x else 0.0 for x in p.astype(np.float64)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def pairs_in_turn(weights: np.ndarray) -> np.ndarray:
    """[N, N] probability to draw i first and then j."""
    p = weights / weights.sum()
    found = p[:, None] * p[None, :] / (1 - p[:, None])
    np.fill_diagonal(found, 0.0)
    return found


def chi_squared(seen: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """(statistic, degrees of freedom)."""
    cells = expected > 0
    return float(((seen - expected)[cells] ** 2 / expected[cells]).sum()), int(cells.sum()) - 1


def by_race_in_blocks(key: jax.Array, weights: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """In blocks of 4, of which the last begins in the one before it."""
    return sampling.by_race_in_blocks(
        key, lambda start: jax.lax.dynamic_slice_in_dim(weights, start, 4), len(weights), 4, count
    )


RACES = [sampling.by_race, by_race_in_blocks]


@pytest.mark.parametrize("draw", RACES)
@pytest.mark.parametrize(
    "weights",
    [[1.0, 2.0, 0.0, 4.0, 0.5, 1.0, 3.0], pytest.param([1.0] * 6, marks=pytest.mark.slow)],
)
def test_weighted_draws_have_the_distribution_of_drawing_in_turn(draw: Any, weights: list[float]) -> None:
    count, w = 20_000, np.array(weights)
    keys = jax.random.split(jax.random.key(1), count)
    drawn, _ = map(np.asarray, jax.jit(jax.vmap(lambda k: draw(k, jnp.float32(w), 2)))(keys))
    seen = np.zeros((len(w), len(w)))
    np.add.at(seen, (drawn[:, 0], drawn[:, 1]), 1)
    expected = pairs_in_turn(w) * count
    assert seen[expected == 0].sum() == 0
    statistic, degrees = chi_squared(seen, expected)
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("draw", RACES)
def test_one_huge_weight_hides_no_other(draw: Any) -> None:
    # And nothing is drawn twice, also where everything is drawn.
    w = np.full(10, 1e-4, np.float32)
    w[3] = 1e8
    drawn, found = map(np.asarray, draw(jax.random.key(0), jnp.asarray(w), 10))
    assert drawn[0] == 3
    assert sorted(drawn) == list(range(10))
    assert found.all()


@pytest.mark.parametrize("draw", RACES)
def test_fewer_rows_than_a_batch(draw: Any) -> None:
    w = np.zeros(10, np.float32)
    w[[0, 4]] = 2.0
    drawn, found = map(np.asarray, draw(jax.random.key(0), jnp.asarray(w), 5))
    assert found.tolist() == [True, True, False, False, False]
    assert sorted(drawn[:2]) == [0, 4]


@pytest.mark.parametrize("size", [4, 7, 23])
def test_uniform_draws(size: int) -> None:
    count, drawn_each = 8_000, 4
    drawn, found = map(np.asarray, draw_uniform(jax.random.key(2), np.int32(size), drawn_each, count))
    assert found.all()
    assert (np.diff(np.sort(drawn, axis=1)) > 0).all()
    seen = np.bincount(np.asarray(drawn).ravel(), minlength=size)
    statistic, degrees = chi_squared(seen, np.full(size, count * drawn_each / size))
    assert len(seen) == size
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5


def test_uniform_draws_of_few_rows_say_how_many_there_are() -> None:
    drawn, found = map(np.asarray, draw_uniform(jax.random.key(0), np.int32(3), 8, 1))
    assert sorted(drawn[0][found]) == [0, 1, 2]
    assert not np.asarray(draw_uniform(jax.random.key(0), np.int32(0), 8, 1)[1]).any()


def test_largest_rings_do_not_overflow() -> None:
    drawn, _ = draw_uniform(jax.random.key(0), np.int32(2**27), 15, 1)
    assert np.asarray(drawn).min() >= 0
    assert np.asarray(drawn).max() < 2**27
