"""The pool: when snapshots are taken and dropped, who is drawn, and ratings, by hand."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.opponents.opponents import Opponents, OpponentState, expected_score, rating_of
from jaxrl.parallel.bulk import keep_before_if
from tests.experience.opponents.self_play import first_state, iteration

B = 8
KEY = jax.random.key(4)


@functools.cache
def opponents() -> Opponents:
    """Of 4 groups the last 2 play a pool of 2; an iteration has 64 steps."""
    found = iteration().learning.opponents
    assert found is not None
    return found


def changed(**fields: Any) -> Opponents:
    found = opponents()
    return dataclasses.replace(found, config=dataclasses.replace(found.config, **fields))


@functools.cache
def update(is_due: bool = False, **fields: Any) -> Any:
    """`Opponents.update` as one program; if `is_due`, each iteration has the steps of a snapshot."""
    others = changed(**fields)
    if is_due:
        others = dataclasses.replace(others, steps_per_iteration=others.config.every_steps)
    return jax.jit(others.update)


@functools.cache
def first() -> tuple[OpponentState, Any]:
    """(the first state, the policy)."""
    state = first_state(iteration())
    return state.opponents, state.learner.policy


def games(*of_groups: tuple[float, float, float]) -> jax.Array:
    """float32[B, 3], of environments 0 to 3, one of each group; the others play no game."""
    found = np.zeros((B, 3), np.float32)
    if of_groups:
        found[: len(of_groups)] = of_groups
    return jnp.asarray(found)


NONE = (0.0, 0.0, 0.0)


def filled(count: int, **fields: Any) -> OpponentState:
    """After so many more snapshots of the policies 1, 2, ..., by steps alone."""
    state, policy = first()
    for i in range(1, count + 1):
        policy = jax.tree.map(lambda x, i=i: np.full_like(x, i), policy)
        state, _ = update(is_due=True, **fields)(state, games(), policy, KEY)
    return state


@pytest.mark.slow
def test_games_are_counted_for_the_snapshot_they_were_played_against() -> None:
    state = filled(1)
    assert state.number.tolist() == [1, 2, 0]
    state = dataclasses.replace(state, playing=jnp.array([1, 0]))
    # Those of the first two groups are against the policy itself and count for nobody.
    results = games((9, 9, 9), (8, 8, 8), (3, 1, 0), (0, 2, 4)).at[6].set(jnp.array([1.0, 0.0, 0.0]))
    after, metrics = update()(state, results, first()[1], KEY)
    np.testing.assert_array_equal(after.record, [[0, 2, 4], [4, 1, 0], [0, 0, 0]])
    assert float(metrics["selfplay/win_rate"].value()) == pytest.approx(4 / 11)
    assert float(metrics["selfplay/draw_rate"].value()) == pytest.approx(3 / 11)
    assert int(metrics["selfplay/pool"].value()) == 2
    # Beyond the number of games that counts older ones fade.
    after, _ = update(games=5, win_rate=1.0)(after, games(NONE, NONE, (5, 0, 0)), first()[1], KEY)
    np.testing.assert_allclose(after.record[1], np.array([9, 1, 0]) / 2)


@pytest.mark.slow
def test_the_rating_is_of_the_latest_games() -> None:
    """Of 10 games with all: those against an opponent of long ago say nothing of the policy of today."""
    state, policy = dataclasses.replace(filled(1), playing=jnp.array([0, 0])), first()[1]
    step = update(games=5, win_rate=1.0)
    state, _ = step(state, games(NONE, NONE, (10, 0, 0)), policy, KEY)
    for _ in range(2):
        state = dataclasses.replace(state, playing=jnp.array([1, 1]))
        state, _ = step(state, games(NONE, NONE, (0, 0, 10)), policy, KEY)
    np.testing.assert_allclose(state.recent, [[2.5, 0, 0], [0, 0, 7.5], [0, 0, 0]])
    # A draw more: 3 of 11, against two of the same rating.
    assert float(state.elo) == pytest.approx(400 * math.log10(3 / 8), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("results", "is_due"),
    # Of 10 games a score above 5.5 is needed, where a draw is half a win.
    [((5, 1, 4), False), ((5, 2, 3), True), ((6, 0, 4), True), ((6, 0, 3), False)],
)
def test_a_beaten_snapshot_makes_another_one_due(results: tuple[float, ...], is_due: bool) -> None:
    state, policy = first()
    after, _ = update(games=10)(state, games(NONE, NONE, results), policy, KEY)
    assert after.number.tolist() == ([1, 2, 0] if is_due else [1, 0, 0])
    assert int(after.snapshot_age) == (0 if is_due else 64)
    if is_due:
        np.testing.assert_array_equal(after.record, [results, NONE, NONE])
        assert float(after.rating[1]) == float(after.elo)
        assert after.playing.tolist()[0] == 1  # the first of the groups plays the newest
        assert after.swapped.tolist()[0]


@pytest.mark.slow
def test_without_games_against_the_pool_there_is_no_rating() -> None:
    """Not a number that looks like one."""
    state, policy = first()
    _, metrics = update()(state, games(), policy, KEY)
    assert not bool(metrics["selfplay/elo"].is_empty)
    alone = opponents()
    seats = dataclasses.replace(alone.seats, latest=4, pooled=0)
    alone = dataclasses.replace(alone, matches=dataclasses.replace(alone.matches, seats=seats))
    _, metrics = jax.jit(alone.update)(alone.init(policy), games(), policy, KEY)
    assert bool(metrics["selfplay/elo"].is_empty)
    assert bool(metrics["selfplay/win_rate"].is_empty)


@pytest.mark.slow
def test_steps_make_a_snapshot_due() -> None:
    state, policy = first()
    state, _ = update(every_steps=100)(state, games(), policy, KEY)
    assert state.number.tolist() == [1, 0, 0]
    state, _ = update(every_steps=100)(state, games(), policy, KEY)
    assert (state.number.tolist(), int(state.snapshot_age)) == ([1, 2, 0], 0)


@pytest.mark.slow
@pytest.mark.parametrize(("drop", "left"), [("oldest", [0, 2, 3]), ("weakest", [1, 0, 3])])
def test_a_full_pool_drops_one(drop: str, left: list[int]) -> None:
    state = filled(1, drop=drop)
    # The first is rated higher than the second here.
    state = dataclasses.replace(state, rating=jnp.array([50.0, 20.0, 0.0]), playing=jnp.array([1, 0]))
    policy = jax.tree.map(lambda x: np.full_like(x, 7), first()[1])
    after, _ = update(is_due=True, drop=drop)(state, games(), policy, KEY)
    assert after.number.tolist() == left
    assert set(after.playing.tolist()) <= {i for i, number in enumerate(left) if number}
    np.testing.assert_array_equal(after.swapped, after.playing != state.playing)
    assert all((np.asarray(x)[2] == 7).all() for x in jax.tree.leaves(after.snapshots))
    # What a failed iteration wrote is in a slot that counts for nothing.
    kept = keep_before_if(jnp.array(True), state, after)
    np.testing.assert_array_equal(kept.number, state.number)
    for slot in (0, 1):
        jax.tree.map(
            lambda x, y, slot=slot: np.testing.assert_array_equal(x[slot], y[slot]),
            kept.snapshots,
            state.snapshots,
        )


@pytest.mark.slow
def test_hard_opponents_are_drawn_more_often() -> None:
    state = dataclasses.replace(filled(1), record=jnp.array([[6.0, 2.0, 0.0], [0.0, 0.0, 8.0], [0.0] * 3]))
    # Two drawn games more: scores 8/10 and 1/10.
    np.testing.assert_allclose(opponents()._weights(state)[:2], [0.2**2, 0.9**2], rtol=1e-6)
    np.testing.assert_array_equal(changed(opponents="uniform")._weights(state), np.ones(3))
    due = dataclasses.replace(state, draw_age=jnp.int32(100))
    draw = jax.jit(jax.vmap(lambda key: changed(swap_steps=100)._draw(due, key).playing[1]))
    drawn = np.bincount(draw(jax.random.split(KEY, 2000)), minlength=3) / 2000
    share = 0.04 / 0.85
    assert drawn[2] == 0
    assert abs(drawn[0] - share) < 4 * math.sqrt(share * (1 - share) / 2000)
    # Nobody is drawn before the time, and who is drawn again goes on.
    waiting = changed(swap_steps=10**6)._draw(dataclasses.replace(state, playing=jnp.array([1, 0])), KEY)
    assert (waiting.playing.tolist(), waiting.swapped.tolist()) == ([1, 0], [False, False])


def test_ratings_by_hand() -> None:
    assert float(expected_score(jnp.float32(400.0))) == pytest.approx(10 / 11)
    # 29.5 of 39 and a draw: 30 of 40, that is odds of 3.
    rating = rating_of(
        jnp.array([29.5, 0.0]), jnp.array([39.0, 0.0]), jnp.array([100.0, 0.0]), jnp.float32(100)
    )
    assert float(rating) == pytest.approx(100 + 400 * math.log10(3), abs=0.01)
    # Nothing but draws against two: in the middle, as far as the draw more does not pull.
    rating = rating_of(
        jnp.array([1e4, 1e4]), jnp.array([2e4, 2e4]), jnp.array([-80.0, 80.0]), jnp.float32(80)
    )
    assert float(rating) == pytest.approx(0.0, abs=0.1)


def test_groups_are_by_the_global_index() -> None:
    seats = opponents().seats
    np.testing.assert_array_equal(seats.of_groups(jnp.arange(4), B), [0, 1, 2, 3] * 2)
    np.testing.assert_array_equal(seats.over_groups(jnp.arange(B)), [4, 6, 8, 10])
