"""The optimiser and its schedules, against numbers by hand and optax on separate leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms import optimizer


def first_step(gradient, max_grad_norm=1.0, rate=0.1):
    transform = optimizer.optimizer(max_grad_norm, rate)
    step, _ = transform.update(gradient, transform.init(jnp.zeros_like(gradient)))
    return np.asarray(step)


def test_first_step_by_hand():
    # Adam's first step is -rate * g / (|g| + eps). correctness 17: eps is 1e-5, so that a gradient of 1e-5
    # moves by half a rate; with 1e-8 it would move by a whole one.
    gradient = jnp.array([0.3, -0.3, 1e-5, 0.0])
    np.testing.assert_allclose(first_step(gradient), [-0.1, 0.1, -0.05, 0.0], rtol=1e-4, atol=1e-9)


def test_gradients_are_clipped_by_their_global_norm():
    # correctness 17: elementwise clipping (`optax.clip`) changes the direction. [30, 0.4] has norm 30.003:
    # all is divided by it. Adam forgets the scale, so look through eps: g = [1, 1e-5] after clipping at 1.
    gradient = jnp.array([30.0, 3e-4])
    np.testing.assert_allclose(first_step(gradient), [-0.1, -0.05], rtol=1e-4)
    # Elementwise the second would stay 3e-4, and step by 0.1 * 3e-4 / (3e-4 + 1e-5) = 0.097.
    np.testing.assert_allclose(first_step(gradient, max_grad_norm=1e3)[1], -0.0968, rtol=1e-3)


def test_small_gradients_are_not_scaled_up():
    np.testing.assert_allclose(first_step(jnp.array([1e-5])), [-0.05], rtol=1e-4)


def test_many_steps_equal_optax_on_separate_leaves():
    # The parameters are one flat vector; clipping by the norm of ALL of them must be what optax does on a
    # tree.
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(20, 7)).astype(np.float32)
    ours = optimizer.optimizer(0.5, 0.01)
    oracle = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01, eps=1e-5))
    flat, tree = jnp.zeros(7), {"a": jnp.zeros(3), "b": jnp.zeros((2, 2))}
    state, oracle_state = ours.init(flat), oracle.init(tree)
    update, oracle_update = jax.jit(ours.update), jax.jit(oracle.update)
    for g in gradients:
        step, state = update(jnp.asarray(g), state)
        flat = flat + step
        step, oracle_state = oracle_update({"a": g[:3], "b": g[3:].reshape(2, 2)}, oracle_state)
        tree = optax.apply_updates(tree, step)
    np.testing.assert_allclose(flat, np.concatenate([tree["a"], tree["b"].reshape(-1)]), rtol=1e-5)


def test_descend_makes_the_steps_of_the_optimizer():
    # Gradients of norms from far below to far above the limit, times 1/8 as if they were sums over 8 rows.
    rng = np.random.default_rng(1)
    params = {"a": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "b": jnp.float32(0.5)}
    limit, rate, scale = jnp.float32(0.5), jnp.float32(0.01), jnp.float32(0.125)
    plain = optimizer.optimizer(limit, rate)
    state = oracle_state = plain.init(params)
    expected, descend = params, jax.jit(optimizer.descend)
    for size in 10.0 ** rng.uniform(-4, 3, size=20):
        noise = {"a": rng.normal(size=(3, 2)), "b": rng.normal()}
        gradient = {name: jnp.asarray(size * x, jnp.float32) for name, x in noise.items()}
        summed = optimizer.Gradient.of(gradient, scale)
        params, state = descend(params, summed, state, limit, rate, jnp.array(True))
        mean = jax.tree.map(lambda x: x / 8, gradient)
        step, oracle_state = plain.update(mean, oracle_state)
        expected = optax.apply_updates(expected, step)
        assert float(summed.norm) == pytest.approx(float(optax.tree.norm(mean)), rel=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), params, expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), state, oracle_state)


def test_descend_hides_no_nan():
    params = {"a": jnp.zeros(2), "b": jnp.zeros(2)}
    state = optimizer.optimizer(1.0, 0.1).init(params)
    gradient = optimizer.Gradient.of({"a": jnp.array([jnp.nan, 0.0]), "b": jnp.ones(2)}, jnp.float32(1.0))
    limits = jnp.float32(1.0), jnp.float32(0.1)
    after, _ = optimizer.descend(params, gradient, state, *limits, jnp.array(True))
    assert np.isnan(gradient.norm)
    assert all(np.isnan(x).all() for x in after.values())


def test_a_step_that_is_not_made_changes_nothing():
    params = {"a": jnp.ones(2), "b": jnp.zeros(2)}
    state = optimizer.optimizer(1.0, 0.1).init(params)
    gradient = optimizer.Gradient.of({"a": jnp.array([jnp.nan, 0.0]), "b": jnp.ones(2)}, jnp.float32(1.0))
    after = optimizer.descend(params, gradient, state, jnp.float32(1.0), jnp.float32(0.1), jnp.array(False))
    jax.tree.map(np.testing.assert_array_equal, after, (params, state))


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),  # after 0, 1, 5, 10 and 12 of 10 updates, of a peak of 2
    [
        ("constant", 0, [2, 2, 2, 2, 2]),
        ("linear", 0, [2, 1.8, 1, 0, 0]),
        ("cosine", 0, [2, 1 + np.cos(np.pi / 10), 1, 0, 0]),
        # The first of 5 warm-up updates has a fifth of the rate; from then on 5 updates down to 0.
        ("linear", 5, [0.4, 0.8, 2, 0, 0]),
        ("constant", 2, [1, 2, 2, 2, 2]),
    ],
)
def test_schedules_by_hand(schedule, warmup, expected):
    updates = jnp.array([0, 1, 5, 10, 12])
    rate = jax.vmap(lambda n: 2.0 * optimizer.schedule_factor(schedule, n, 10, warmup))(updates)
    np.testing.assert_allclose(rate, expected, atol=1e-6)
