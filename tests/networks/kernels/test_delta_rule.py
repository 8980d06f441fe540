"""The gated delta rule: its equation with whole matrices in numpy, and sequences that are stored in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels.delta_rule import DeltaInputs, delta_rule

N, H, K, V = 2, 2, 3, 4


def problem(length):
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    key = normal(length, N, H, K)
    inputs = DeltaInputs(
        query=normal(length, N, H, K),
        key=key / np.linalg.norm(key, axis=-1, keepdims=True),
        value=normal(length, N, H, V),
        decay=rng.uniform(0.5, 1.0, (length, N, H)).astype(np.float32),
        strength=rng.uniform(0.0, 1.0, (length, N, H)).astype(np.float32),
    )
    return normal(N, H, V, K), inputs, rng.random((length, N)) < 0.1


@pytest.mark.parametrize("length", [1, 9, 37])
def test_the_rule_is_its_equation(length):
    state, inputs, reset = problem(length)
    last, y = jax.jit(delta_rule)(state, inputs, reset)
    expected = np.zeros((length, N, H, V))
    s = state.astype(np.float64)
    for t in range(length):
        s[reset[t]] = 0.0
        for n in range(N):
            for h in range(H):
                k, b = inputs.key[t, n, h], inputs.strength[t, n, h]
                s[n, h] = inputs.decay[t, n, h] * s[n, h] @ (np.eye(K) - b * np.outer(k, k))
                s[n, h] += b * np.outer(inputs.value[t, n, h], k)
                expected[t, n, h] = s[n, h] @ inputs.query[t, n, h]
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(last, s, atol=1e-5)


def test_what_was_written_is_found_and_rewritten():
    # Without decay and with strength 1, a key finds the value that was written last under it.
    one, other = np.eye(K, dtype=np.float32)[:2]
    keys = jnp.asarray(np.stack([one, other, one, other]))[:, None, None]
    values = jnp.arange(4.0)[:, None, None, None] + jnp.ones((4, 1, 1, V))
    rates = jnp.ones((4, 1, 1))
    inputs = DeltaInputs(
        query=jnp.roll(keys, -1, axis=0), key=keys, value=values, decay=rates, strength=rates
    )
    _, y = delta_rule(jnp.zeros((1, 1, V, K)), inputs, jnp.zeros((4, 1), bool))
    np.testing.assert_allclose(y[:, 0, 0, 0], [0.0, 1.0, 2.0, 3.0], atol=1e-6)
