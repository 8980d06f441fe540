"""Matrices over time: their equations with whole matrices in numpy, and blocks beside steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels.matrix_memory import (
    MemoryInputs,
    matrix_memory,
    memory_step,
    step_by_products,
    step_by_sums,
)

N, H, K, V = 2, 2, 3, 4
memory = jax.jit(matrix_memory, static_argnames="corrects")
rule = partial(memory, corrects=True)


def problem(length):
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    key = normal(length, N, H, K)
    inputs = MemoryInputs(
        query=normal(length, N, H, K),
        key=key / np.linalg.norm(key, axis=-1, keepdims=True),
        value=normal(length, N, H, V),
        log_decay=np.log(rng.uniform(0.5, 1.0, (length, N, H))).astype(np.float32),
        strength=rng.uniform(0.0, 1.0, (length, N, H)).astype(np.float32),
    )
    return normal(N, H, V, K), inputs, rng.random((length, N)) < 0.1


@pytest.mark.parametrize("corrects", [False, True])
@pytest.mark.parametrize("length", [1, 9, 70])
def test_the_memory_is_its_equation(length, corrects):
    state, inputs, reset = problem(length)
    last, y = memory(state, inputs, reset, corrects=corrects)
    expected = np.zeros((length, N, H, V))
    s = state.astype(np.float64)
    for t in range(length):
        s[reset[t]] = 0.0
        for n in range(N):
            for h in range(H):
                k, b = inputs.key[t, n, h], inputs.strength[t, n, h]
                erased = corrects * b * np.outer(k, k)
                s[n, h] = np.exp(inputs.log_decay[t, n, h]) * s[n, h] @ (np.eye(K) - erased)
                s[n, h] += b * np.outer(inputs.value[t, n, h], k)
                expected[t, n, h] = s[n, h] @ inputs.query[t, n, h]
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(last, s, atol=1e-5)


@pytest.mark.parametrize("corrects", [False, True])
def test_steps_by_products_and_by_sums_agree(corrects):
    # Sums are for accelerators, which these tests do not have.
    state, inputs, _ = problem(1)
    x = jax.tree.map(lambda x: x[0], inputs)
    reset = np.array([True, False])
    state[0] = np.nan  # of an episode that has ended
    found = jax.jit(partial(step_by_products, corrects))(state, x, reset)
    expected = jax.jit(partial(step_by_sums, corrects))(state, x, reset)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_what_was_written_is_found_and_rewritten():
    # Without decay and with strength 1, a key finds the value that was written last under it.
    one, other = np.eye(K, dtype=np.float32)[:2]
    keys = np.stack([one, other, one, other])[:, None, None]
    values = np.arange(4, dtype=np.float32)[:, None, None, None] + np.ones((4, 1, 1, V), np.float32)
    rates = np.ones((4, 1, 1), np.float32)
    inputs = MemoryInputs(
        query=np.roll(keys, -1, axis=0), key=keys, value=values, log_decay=0 * rates, strength=rates
    )
    _, y = rule(np.zeros((1, 1, V, K), np.float32), inputs, np.zeros((4, 1), bool))
    np.testing.assert_allclose(y[:, 0, 0, 0], [0.0, 1.0, 2.0, 3.0], atol=1e-6)


def in_steps(state, inputs, reset, corrects=True):
    return jax.lax.scan(lambda state, x: memory_step(state, *x, corrects), state, (inputs, reset))


@pytest.mark.slow
@pytest.mark.parametrize("corrects", [False, True])
def test_gradients_are_those_of_the_steps(corrects):
    state, inputs, reset = problem(70)
    weights = np.random.default_rng(1).normal(size=(70, N, H, V)).astype(np.float32)

    def gradients(rule):
        def loss(state, inputs):
            last, y = rule(state, inputs, reset, corrects=corrects)
            return (y * weights).sum() + jnp.square(last).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(state, inputs)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4),
        gradients(matrix_memory),
        gradients(in_steps),
    )


def test_equal_keys_that_never_fade_are_solved_exactly():
    # Powers of the triangular system, which has ones everywhere, would be thousands that cancel.
    state, inputs, reset = problem(32)
    ones = np.ones((32, N, H), np.float32)
    inputs = inputs._replace(
        key=np.broadcast_to(inputs.key[:1], inputs.key.shape), log_decay=0 * ones, strength=ones
    )
    both = (each(state, inputs, reset) for each in (rule, jax.jit(in_steps)))
    for found, expected in zip(*both, strict=True):
        np.testing.assert_allclose(found, expected, atol=4e-6)


@pytest.mark.parametrize("where", ["state", "key", "value", "log_decay"])
def test_what_is_not_finite_stays_in_its_episode(where):
    state, inputs, _ = problem(100)
    reset = np.zeros((100, N), bool)
    reset[[5, 80], 0] = True  # from step 5 over two ends of blocks
    expected, y = rule(state, inputs, reset)
    bad = np.zeros((100, N), bool)
    if where == "state":
        state = np.array(state)
        state[0] = np.nan
        bad[:5, 0] = True
    else:
        spoilt = np.array(getattr(inputs, where))
        spoilt[7, 0] = np.nan
        inputs = inputs._replace(**{where: spoilt})
        bad[7:80, 0] = True
    last, found = rule(state, inputs, reset)
    assert np.isnan(np.asarray(found)[bad]).all()
    np.testing.assert_array_equal(np.asarray(found)[~bad], np.asarray(y)[~bad])
    np.testing.assert_array_equal(last, expected)
