"""S5: its spectrum and its discretisation beside numpy's, and the whole core beside complex numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.linear_cores import S5, hippo_n, zero_order_hold

P, D, L, N = 5, 4, 11, 3


def test_the_spectrum_is_that_of_hippo_n():
    # Gu et al. 2022: A_nk = -sqrt(n + 1/2) sqrt(k + 1/2), n > k; half of it, mirrored; -1/2 on the diagonal.
    size = 2 * P
    a = np.zeros((size, size))
    for n in range(size):
        a[n, n] = -0.5
        for k in range(n):
            a[n, k] = -np.sqrt(n + 0.5) * np.sqrt(k + 0.5)
            a[k, n] = -a[n, k]
    expected = np.linalg.eigvals(a)
    np.testing.assert_allclose(expected.real, -0.5, atol=1e-8)
    np.testing.assert_allclose(hippo_n(P), np.sort(expected.imag)[P:], rtol=1e-6)


def test_the_input_is_held_over_a_time_step():
    rng = np.random.default_rng(0)
    spectrum = np.stack([rng.normal(size=P), 10 * rng.normal(size=P), np.linspace(-9, 0, P)])
    a, held = jax.device_get(zero_order_hold(jnp.asarray(spectrum, jnp.float32)))
    eigenvalue, step = -np.exp(spectrum[0]) + 1j * spectrum[1], np.exp(spectrum[2])
    expected = np.exp(eigenvalue * step)
    np.testing.assert_allclose(a[0] + 1j * a[1], expected, rtol=1e-4)
    # Small steps too: exp(x) - 1 would lose most of its digits.
    np.testing.assert_allclose(held[0] + 1j * held[1], (expected - 1) / eigenvalue, rtol=2e-4)


@pytest.mark.slow
def test_the_core_is_its_equations():
    core, rng = S5(D, P), np.random.default_rng(1)
    x, reset = rng.normal(size=(L, N, D)).astype(np.float32), rng.random((L, N)) < 0.2
    carry = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), core.initial_carry(N))
    params = jax.tree.map(np.asarray, jax.jit(core.init)(jax.random.key(0), x, carry, reset)["params"])
    params["bias"] = params["bias"] + np.float32(0.5)
    y, last = jax.device_get(jax.jit(core.apply)({"params": params}, x, carry, reset))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    eigenvalue = -np.exp(p["spectrum"][0]) + 1j * p["spectrum"][1]
    a = np.exp(eigenvalue * np.exp(p["spectrum"][2]))
    b = ((a - 1) / eigenvalue) * (p["input"][:, :P] + 1j * p["input"][:, P:])
    c = (p["output"][:P] - 1j * p["output"][P:]) / 2
    h, gelu = carry["real"] + 1j * carry["imaginary"].astype(np.complex128), jax.jit(jax.nn.gelu)
    for t in range(L):
        u = x[t] - x[t].mean(axis=-1, keepdims=True)
        u = u / np.sqrt((u**2).mean(axis=-1, keepdims=True) + 1e-6)
        h = a * np.where(reset[t][:, None], 0.0, h) + u @ b
        g = np.asarray(gelu(2 * (h @ c).real + p["skip"] * u))
        expected = x[t] + g / (1 + np.exp(-(g @ p["gate"] + p["bias"])))
        np.testing.assert_allclose(y[t], expected, atol=1e-5)
    np.testing.assert_allclose(last["real"] + 1j * last["imaginary"], h, atol=1e-5)
