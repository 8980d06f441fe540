"""minGRU and LRU: their equations in numpy, how they begin, and chunks of a sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.linear_cores import LRU, MinGRU

L, N, F, H = 12, 5, 3, 8
CORES = {"mingru": MinGRU(H), "lru": LRU(H, "tanh")}


def problem(kind):
    """(core, params, x, carry, reset); every parameter is another number."""
    core, rng = CORES[kind], np.random.default_rng(0)
    normal = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    carry = jax.tree.map(normal, core.initial_carry(N))
    x, reset = normal(jnp.zeros((L, N, F))), rng.random((L, N)) < 0.2
    reset[:, 0], reset[0, 1] = False, True
    params = jax.jit(core.init)(jax.random.key(0), x, carry, jnp.asarray(reset))["params"]
    params["bias"] = params["bias"] + normal(params["bias"])
    return core, params, x, carry, jnp.asarray(reset)


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def mingru(params, x, carry):
    z, n = np.split(x @ params["input"] + params["bias"], 2, axis=-1)
    z = 1 / (1 + np.exp(-z))
    h = (1 - z) * carry["h"] + z * n
    return h, {"h": h}


def lru(params, x, carry):
    log_nu, log_theta, log_gamma = params["eigenvalues"]
    eigenvalue = np.exp(-np.exp(log_nu) + 1j * np.exp(log_theta))
    b = params["input"][:, :H] + 1j * params["input"][:, H:]
    c = params["output"][:H] - 1j * params["output"][H:]
    h = eigenvalue * (carry["real"] + 1j * carry["imaginary"]) + np.exp(log_gamma) * (x @ b)
    y = np.tanh((h @ c).real + x @ params["skip"] + params["bias"])
    return y, {"real": h.real, "imaginary": h.imag}


@pytest.mark.parametrize("kind", [pytest.param("mingru", marks=pytest.mark.slow), "lru"])
def test_core_equals_its_equations_in_numpy(kind):
    core, params, x, carry, reset = problem(kind)
    y, last = jax.jit(lambda p: core.apply({"params": p}, x, carry, reset))(params)
    step, state, expected = {"mingru": mingru, "lru": lru}[kind], double(carry), []
    for x_t, reset_t in zip(double(x), np.asarray(reset), strict=True):
        state = {name: np.where(reset_t[:, None], 0.0, part) for name, part in state.items()}
        y_t, state = step(double(params), x_t, state)
        expected.append(y_t)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    for name, part in state.items():
        np.testing.assert_allclose(last[name], part, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mingru", pytest.param("lru", marks=pytest.mark.slow)])
def test_chunks_pass_the_carry_on(kind):
    # correctness 1 and 2: values and gradients of a sequence are those of its chunks, one after the other.
    core, params, x, carry, reset = problem(kind)

    def loss(params, x, carry, length):
        total, found = 0.0, []
        for i in range(0, L, length):
            y, carry = core.apply({"params": params}, x[i : i + length], carry, reset[i : i + length])
            found.append(y)
            total += jnp.square(y).sum()
        return total, jnp.concatenate(found)

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True), static_argnums=3)
    whole, chunks = run(params, x, carry, L), run(params, x, carry, 4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), chunks, whole)
    assert all(float(jnp.abs(g).max()) > 1e-3 for g in jax.tree.leaves(whole[1]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CORES)
def test_bfloat16_keeps_the_carry_in_float32(kind):
    # correctness 22: only the operands of the matrix products are rounded, a sum over many steps never is.
    core, params, x, carry, reset = problem(kind)
    half = core.clone(dtype=jnp.bfloat16)
    y, last = half.apply({"params": params}, x.astype(jnp.bfloat16), carry, reset)
    assert y.dtype == jnp.bfloat16
    for part in jax.tree.leaves((params, last)):
        assert part.dtype == jnp.float32
    assert any(
        (part != part.astype(jnp.bfloat16).astype(jnp.float32)).any() for part in jax.tree.leaves(last)
    )
    exact, _ = core.apply({"params": params}, x, carry, reset)
    np.testing.assert_allclose(y.astype(jnp.float32), exact, atol=0.1)


@pytest.mark.long
@pytest.mark.parametrize("kind", CORES)
def test_fresh_units_remember_for_different_times_and_are_equally_loud(kind):
    # Units with a long memory average over many steps; the normalisation makes up for it.
    size, length, n, rng = 32, 1500, 128, np.random.default_rng(0)
    core = CORES[kind].clone(size=size)
    # So quiet that no gate moves.
    x = jnp.asarray(rng.normal(size=(length, n, size)) * 1e-3, jnp.float32)
    carry, reset = core.initial_carry(n), jnp.zeros((length, n), bool)
    params = jax.jit(core.init)(jax.random.key(0), x[:1], carry, reset[:1])["params"]
    _, last = jax.jit(lambda p: core.apply({"params": p}, x, carry, reset))(params)
    for part in last.values():
        np.testing.assert_allclose(part.std(axis=0), 1e-3, rtol=0.25)
    _, faded = core.apply({"params": params}, 0 * x[:40], last, reset[:40])
    left = np.sqrt(sum(jnp.square(x).sum(axis=0) for x in faded.values())) / np.sqrt(
        sum(jnp.square(x).sum(axis=0) for x in last.values())
    )
    assert left.min() < 0.01
    assert left.max() > 0.5
