"""Cores with a matrix for each head, step by step in numpy from the equations of their papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks import fast_weights
from jaxrl.networks.cores import build_core
from jaxrl.networks.fast_weights import stabiliser
from tests.networks.test_slstm import in_chunks, sigmoid

# Steps: two blocks of the memory and a part of one.
L, N, D, H = 70, 2, 8, 2
W = D // H


def silu(x):
    return x * sigmoid(x)


class LinearAttention:
    """Sun et al. 2023, equations 6 and 8: S_n = gamma S_{n-1} + K_n^T V_n, out = Q_n S_n, K over sqrt(d)."""

    def __init__(self, p):
        self.decay = 1 - 2.0 ** (-5 - np.arange(H))

    def begin(self, h):
        return np.zeros((W, W))

    def step(self, h, s, u, q, k, v):
        s = self.decay[h] * s + np.outer(k / np.sqrt(W), v)
        return s, q @ s


class Mamba2:
    """Dao and Gu 2024: h_t = exp(-A dt) h_{t-1} + dt B x, y = C h + D x, each of silu (figure 6)."""

    def __init__(self, p):
        self.p = p

    def begin(self, h):
        return np.zeros((W, W))

    def step(self, h, s, u, c, b, x):
        c, b, x = silu(c), silu(b), silu(x)
        dt = np.log1p(np.exp(u @ self.p["rates"][:, h] + self.p["bias"][h]))
        s = np.exp(-np.exp(self.p["log_a"][h]) * dt) * s + dt * np.outer(x, b)
        return s, s @ c + self.p["skip"][h] * x


class MLSTM:
    """Beck et al. 2024, equations 19 to 27, without any stabiliser: float64 holds exp(30)."""

    def __init__(self, p):
        self.p = p

    def begin(self, h):
        return np.zeros((W, W)), np.zeros(W)

    def step(self, h, state, u, q, k, v):
        c, n = state
        rates = u @ self.p["rates"] + self.p["bias"]
        i, f = np.exp(rates[h]), sigmoid(rates[H + h])
        k = k / np.sqrt(W)
        c, n = f * c + i * np.outer(v, k), f * n + i * k
        return (c, n), c @ q / max(abs(n @ q), 1.0)


MEMORIES = {"linear_attention": LinearAttention, "mamba2": Mamba2, "mlstm": MLSTM}


def in_numpy(memory, p, x, reset):
    """The core around a memory: x + W_o (rms(y) * scale * silu(z))."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), p)
    memory, y = MEMORIES[memory](p), np.zeros((L, N, D))
    for n in range(N):
        states = [memory.begin(h) for h in range(H)]
        for t in range(L):
            u = x[t, n] - x[t, n].mean()
            u = u / np.sqrt((u**2).mean() + 1e-6) * p["norm"]["scale"] + p["norm"]["bias"]
            q, k, v, z = np.split(u @ p["input"], 4)
            for h in range(H):
                at = slice(h * W, (h + 1) * W)
                state = memory.begin(h) if reset[t, n] else states[h]
                states[h], read = memory.step(h, state, u, q[at], k[at], v[at])
                y[t, n, at] = read / np.sqrt((read**2).mean() + 1e-2)
            y[t, n] = x[t, n] + (y[t, n] * p["scale"] * silu(z)) @ p["output"]
    return y


@pytest.fixture(
    params=[x if x == "mamba2" else pytest.param(x, marks=pytest.mark.slow) for x in MEMORIES],
)
def problem(request):
    """(name, core, parameters, x, resets)."""
    core = build_core(NetworkConfig(core=request.param, core_size=D, core_heads=H))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(L, N, D)).astype(np.float32)
    reset = rng.random((L, N)) < 0.04
    params = jax.jit(core.init)(jax.random.key(0), x, core.initial_carry(N), reset)["params"]
    # Not ones and zeros, so that all matter; and large input gates of the mLSTM, exp(20) and more.
    params = jax.tree.map(lambda p: p + rng.normal(size=p.shape).astype(np.float32) / 4, params)
    if request.param == "mlstm":
        params["rates"] = params["rates"] * 8.0
    return request.param, core, params, x, reset


def test_the_core_is_its_equations(problem):
    name, core, params, x, reset = problem
    y, _ = jax.jit(core.apply)({"params": params}, x, core.initial_carry(N), reset)
    np.testing.assert_allclose(y, in_numpy(name, params, x, reset), atol=2e-4)


@pytest.mark.slow
def test_chunks_from_stored_carries_are_the_sequence(problem):
    _, core, params, x, reset = problem
    expected, last = in_chunks(core, params, x, core.initial_carry(N), reset, L)
    found, carry = in_chunks(core, params, x, core.initial_carry(N), reset, 10)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4, rtol=2e-4), carry, last)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["mlstm"], indirect=True)
def test_segments_are_the_sequence(problem, monkeypatch):
    name, core, params, x, reset = problem

    def loss(params, x):
        y, carry = core.apply({"params": params}, x, core.initial_carry(N), reset)
        return jnp.square(y).mean() + sum(jnp.square(c).mean() for c in jax.tree.leaves(carry)), y

    def gradients():
        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(params, x)

    expected, _ = gradients()
    # Four segments and a rest.
    monkeypatch.setattr(fast_weights, "_SEGMENT", 16)
    monkeypatch.setattr(fast_weights, "_LONG", 32)
    found, y = gradients()
    np.testing.assert_allclose(y, in_numpy(name, params, x, reset), atol=2e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max()), found, expected)


@pytest.mark.slow
def test_a_long_sequence_takes_the_memory_of_a_segment(monkeypatch):
    core = build_core(NetworkConfig(core="gated_delta", core_size=32, core_heads=H))
    x, reset = np.ones((512, N, 32), np.float32), np.zeros((512, N), bool)
    params = jax.jit(core.init)(jax.random.key(0), x[:1], core.initial_carry(N), reset[:1])

    def memory():
        loss = lambda p, x: jnp.square(core.apply(p, x, core.initial_carry(N), reset)[0]).mean()  # noqa: E731
        program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(params, x).compile()
        return program.memory_analysis().temp_size_in_bytes

    monkeypatch.setattr(fast_weights, "_SEGMENT", 32)
    segments = memory()
    monkeypatch.setattr(fast_weights, "_LONG", 512)
    assert segments < memory() / 5


def test_the_stabiliser_is_a_running_maximum():
    log_f = np.log(np.array([0.5, 0.5, 0.5, 0.5], np.float32))[:, None, None]
    log_i = np.array([-9.0, 3.0, -9.0, np.nan], np.float32)[:, None, None]
    reset = np.array([False, False, False, True])[:, None]
    found = jax.jit(stabiliser)(log_f, log_i, jnp.full((1, 1), 2.0), reset)
    half = np.log(0.5)
    np.testing.assert_allclose(found[:, 0, 0], [2 + half, 3.0, 3 + half, 0.0], rtol=1e-6)


@pytest.mark.slow
def test_large_input_gates_stay_finite():
    # exp(200) has no float32; the last step's gate is nothing beside it.
    core = build_core(NetworkConfig(core="mlstm", core_size=D, core_heads=H))
    x, reset = np.ones((L, N, D), np.float32), np.zeros((L, N), bool)
    params = jax.jit(core.init)(jax.random.key(0), x, core.initial_carry(N), reset)["params"]
    params["bias"] = params["bias"].at[:H].set(200.0)

    def loss(params):
        y, carry = core.apply({"params": params}, x, core.initial_carry(N), reset)
        return jnp.square(y).sum(), carry

    (value, carry), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(carry["stabiliser"], 200.0, atol=20.0)
    assert np.isfinite(value)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradient, carry)))
