"""Formulas of replay beside plain loops, and what is drawn beside the probabilities that it should have."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import n_step_return
from jaxrl.experience.replay import PrioritizedReplayBuffer, priorities, sampling
from jaxrl.experience.replay.windows import counted_steps

GAMMA = 0.9
draw_weighted = jax.jit(sampling.draw_weighted, static_argnums=(2, 3))
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
    beta_at = jax.jit(lambda draws: priorities.beta_at(draws, 0.4, 100))
    found = [float(beta_at(np.int32(d))) for d in (0, 50, 100, 1000)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0], rtol=1e-6)


def test_importance_weights() -> None:
    p = np.array([0.5, 0.25, 0.0, 1e-9], np.float32)
    found = jax.jit(priorities.importance)(p, np.float32(10.0), np.float32(0.7))
    expected = [(10 * x) ** -0.7 if x else 0.0 for x in p.astype(np.float64)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_priorities_that_are_not_finite_do_not_enter() -> None:
    leaf = np.arange(1.0, 5.0, dtype=np.float32)
    error = np.array([np.nan, np.inf, 3.0, -7.0], np.float32)

    @jax.jit
    def update(leaf: jax.Array, error: jax.Array) -> jax.Array:
        new = priorities.leaf_of(error, 0.6)
        return priorities.update(leaf, (jnp.arange(4),), new, jnp.array([True, True, True, False]))

    found = update(leaf, error)
    np.testing.assert_allclose(found, [1.0, 2.0, (3 + 1e-5) ** 0.6, 4.0], rtol=1e-6)


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


def of_one_member(key: jax.Array, weights: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    return sampling.in_turn(key, weights[None], count)


def of_two_members(key: jax.Array, weights: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Of 2 x 5 weights of which the third of each member is not allowed; 6 or 7 are those given."""
    given = jnp.concatenate([weights, jnp.zeros(8 - len(weights))]).reshape(2, 4)
    spread = jnp.insert(given, 2, 100.0, axis=1)
    index, found = sampling.in_turn(key, spread, count, jnp.arange(5) != 2)
    return index // 5 * 4 + index % 5 - (index % 5 > 2).astype(jnp.int32), found


@pytest.mark.parametrize("draw", [sampling.by_race, of_one_member, of_two_members])
@pytest.mark.parametrize("weights", [[1.0, 2.0, 0.0, 4.0, 0.5, 1.0, 3.0], [1.0] * 6])
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


@pytest.mark.parametrize("few_kernels", [False, True])
def test_one_huge_weight_hides_no_other(few_kernels: bool) -> None:
    # And nothing is drawn twice, also where everything is drawn.
    w = np.full(10, 1e-4, np.float32)
    w[3] = 1e8
    drawn, found = map(np.asarray, draw_weighted(jax.random.key(0), w, 10, few_kernels))
    assert drawn[0] == 3
    assert sorted(drawn) == list(range(10))
    assert found.all()


@pytest.mark.parametrize("few_kernels", [False, True])
def test_fewer_rows_than_a_batch(few_kernels: bool) -> None:
    w = np.zeros(10, np.float32)
    w[[0, 4]] = 2.0
    drawn, found = map(np.asarray, draw_weighted(jax.random.key(0), w, 5, few_kernels))
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


class LoopBuffer:
    """Prioritised replay of Schaul et al. as plain lists."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.items, self.priority, self.at = capacity, [], [], 0  # type: ignore[var-annotated]

    def add(self, items: list[int]) -> None:
        largest = max(self.priority, default=1.0)
        for item in items:
            if len(self.items) < self.capacity:
                self.items.append(item)
                self.priority.append(largest)
            else:
                self.items[self.at], self.priority[self.at] = item, largest
            self.at = (self.at + 1) % self.capacity

    def weights(self, index: Any, beta: float) -> np.ndarray:
        p = np.array(self.priority) ** 0.6
        raw = (len(p) * p[index] / p.sum()) ** -beta
        return raw / raw.max()


def test_buffer_of_ones_own_beside_a_loop() -> None:
    buffer, loop = PrioritizedReplayBuffer(8, beta_frames=10), LoopBuffer(8)
    state = buffer.init(jnp.int32(0))
    add, sample = jax.jit(buffer.add), jax.jit(buffer.sample, static_argnums=2)
    update, random = jax.jit(buffer.update_priorities), np.random.default_rng(0)
    for i in range(12):
        new = list(range(3 * i, 3 * i + 3))
        loop.add(new)
        state = add(state, jnp.array(new, jnp.int32))
        state, items, index, weight = sample(state, jax.random.key(i), 3)
        assert len(set(np.asarray(index).tolist())) == 3
        assert [loop.items[j] for j in index] == np.asarray(items).tolist()
        expected = loop.weights(np.asarray(index), 0.4 + 0.6 * min(i / 10, 1.0))
        np.testing.assert_allclose(weight, expected, rtol=1e-4)
        error = random.normal(size=3) * 10.0 ** random.integers(-3, 3)
        for j, e in zip(index, error, strict=True):
            loop.priority[j] = abs(e) + 1e-5
        state = update(state, index, jnp.float32(error))
        assert int(state.count) == len(loop.items)


def test_buffer_of_ones_own_that_holds_less_than_a_batch() -> None:
    buffer = PrioritizedReplayBuffer(4)

    @jax.jit
    def play(key: jax.Array) -> Any:
        state = buffer.add(buffer.init(jnp.int32(0)), jnp.array([7], jnp.int32))
        state, *drawn, index, weight = buffer.sample(state, key, 3)
        return *drawn, index, weight, buffer.update_priorities(state, index, jnp.full(3, 5.0)).leaf

    items, index, weight, leaf = play(jax.random.key(0))
    assert (index.tolist(), weight.tolist(), int(items[0])) == ([0, 4, 4], [1.0, 0.0, 0.0], 7)
    np.testing.assert_allclose(leaf, [5.00001**0.6, 0.0, 0.0, 0.0], rtol=1e-6)


def test_buffer_of_ones_own_names_what_does_not_fit() -> None:
    buffer = PrioritizedReplayBuffer(4)
    state = buffer.init(jnp.zeros(2))
    with pytest.raises(ValueError, match="is below a batch of 5"):
        buffer.sample(state, jax.random.key(0), 5)
    with pytest.raises(ValueError, match="5 items do not fit"):
        buffer.add(state, jnp.zeros((5, 2)))
    with pytest.raises(ValueError, match="`capacity`"):
        PrioritizedReplayBuffer(0)
    index = jnp.array([4, 2, 1], jnp.int32)  # the first is none
    with pytest.raises(ValueError, match="^`errors` must be finite: 1 of 3 .* inf of the item 1$"):
        buffer.update_priorities(state, index, jnp.array([jnp.nan, 1.0, jnp.inf]))
