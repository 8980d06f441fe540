"""FFM beside the paper's sums in complex numbers, and how long it remembers at first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.linear_cores import FFM
from tests.networks.test_slstm import in_chunks, sigmoid

L, N, F, D = 11, 3, 5, 4
TRACES, CONTEXTS = 3, 2
CORE = FFM(D, TRACES * CONTEXTS, CONTEXTS)


def state_of(carry):
    state = carry["real"] + 1j * np.asarray(carry["imaginary"], np.complex128)
    return state.reshape(N, TRACES, CONTEXTS)


def by_the_paper(p, x, carry, reset):
    """(y, last state): Morad et al. 2023, each state as the sum over its episode."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), p)
    l1, l2, l4, l5 = np.split(p["input"], [TRACES, 2 * TRACES, 2 * TRACES + D], axis=1)
    b1, b2, b4, b5 = np.split(p["input_bias"], [TRACES, 2 * TRACES, 2 * TRACES + D])

    def gamma(steps):
        return np.exp(-steps * np.abs(p["decay"]))[:, None] * np.exp(1j * steps * p["angle"])[None]

    y, state = np.zeros((L, N, D)), np.zeros((N, TRACES, CONTEXTS), complex)
    for n in range(N):
        for t in range(L):
            first = max((s for s in range(t + 1) if reset[s, n]), default=None)
            state[n] = 0 if first is not None else gamma(t + 1) * state_of(carry)[n]
            for s in range(first or 0, t + 1):
                written = (x[s, n] @ l1 + b1) * sigmoid(x[s, n] @ l2 + b2)
                state[n] += gamma(t - s) * np.outer(written, np.ones(CONTEXTS))
            flat = np.concatenate([state[n].real.ravel(), state[n].imag.ravel()])
            z = flat @ p["output"] + p["output_bias"]
            z = (z - z.mean()) / np.sqrt(z.var() + 1e-6)
            gate = sigmoid(x[t, n] @ l4 + b4)
            y[t, n] = z * gate + (x[t, n] @ l5 + b5) * (1 - gate)
    return y, state


@pytest.mark.slow
@pytest.mark.parametrize("length", [L, 4])
def test_the_core_is_the_papers_sums_whole_and_in_chunks(length):
    rng = np.random.default_rng(0)
    x, reset = rng.normal(size=(L, N, F)).astype(np.float32), rng.random((L, N)) < 0.15
    reset[0], reset[5, 1], reset[:, 2] = [True, False, False], True, False
    carry = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), CORE.initial_carry(N))
    params = jax.jit(CORE.init)(jax.random.key(0), x, carry, reset)["params"]
    # Other numbers than the first ones, decays of both signs among them.
    params = jax.tree.map(lambda p: np.array(p + 0.3 * rng.normal(size=p.shape), np.float32), params)
    params["decay"][0] = -0.2
    expected, state = by_the_paper(params, x, carry, reset)
    found, carry = in_chunks(CORE, params, x, carry, reset, length)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(state_of(jax.device_get(carry)), state, atol=1e-5)


@pytest.mark.slow
def test_the_first_traces_forget_in_a_step_and_the_last_a_hundredth_short_of_all_in_1024():
    core = FFM(16, 128, 4)
    shapes = (jnp.zeros((1, 1, 8)), core.initial_carry(1), jnp.zeros((1, 1), bool))
    params = jax.jit(core.init)(jax.random.key(0), *shapes)["params"]
    assert params["decay"].shape == (32,)
    left = np.exp(-np.asarray(params["decay"], np.float64))
    np.testing.assert_allclose(left[-1] ** 1024, 0.01, rtol=1e-3)
    assert 0.5 < left[0] < 0.52
    np.testing.assert_allclose(np.diff(params["decay"]), -(0.673 - 0.0045) / 31, rtol=1e-3)
    np.testing.assert_allclose(2 * np.pi / params["angle"], [1, 342, 683, 1024], rtol=1e-5)
