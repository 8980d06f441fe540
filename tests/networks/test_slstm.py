"""sLSTM beside the paper's equations without a stabiliser, in double precision, head by head."""

import jax
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks.cores import SLSTM, build_core
from jaxrl.networks.kernels import cells

L, N, F, HEADS, WIDTH = 11, 3, 5, 2, 3
D = HEADS * WIDTH
CORE = SLSTM(D, cells.SLSTM, blocks=HEADS)


def test_checkpoints_name_its_parameters_by_the_class() -> None:
    assert type(build_core(NetworkConfig(core="slstm"))).__name__ == "SLSTM"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def in_chunks(core, params, x, carry, reset, length):
    """(outputs, last carry) of a sequence, so many steps at once."""
    run, found = jax.jit(core.apply), []
    for i in range(0, len(x), length):
        y, carry = run({"params": params}, x[i : i + length], carry, reset[i : i + length])
        found.append(y)
    return np.concatenate(found), carry


def by_the_paper(p, x, carry, reset):
    """(h, c / n at the end): equations 8 to 14 of Beck et al. 2024, with plain exponentials."""
    p, carry = jax.tree.map(lambda x: np.asarray(x, np.float64), (p, carry))
    found, last = np.zeros((L, N, D)), np.zeros((N, D))
    blocks = p["recurrent"].reshape(HEADS, WIDTH, 4, WIDTH)
    for n in range(N):
        c, norm, h = (carry[name][n] * np.exp(carry["m"][n] * (name != "h")) for name in "cnh")
        for t in range(L):
            if reset[t, n]:
                c, norm, h = np.zeros(D), np.zeros(D), np.zeros(D)
            gates = {}
            for k, name in enumerate("ifzo"):
                columns = slice(k * D, (k + 1) * D)
                mixed = [h[j * WIDTH : (j + 1) * WIDTH] @ blocks[j, :, k] for j in range(HEADS)]
                gates[name] = x[t, n] @ p["input"][:, columns] + p["bias"][columns] + np.concatenate(mixed)
            f, i = sigmoid(gates["f"]), np.exp(gates["i"])
            c, norm = f * c + i * np.tanh(gates["z"]), f * norm + i
            h = sigmoid(gates["o"]) * c / norm
            found[t, n] = h
        last[n] = c / norm
    return found, last


def problem(scale):
    rng = np.random.default_rng(0)
    x, reset = rng.normal(size=(L, N, F)).astype(np.float32), rng.random((L, N)) < 0.15
    reset[0], reset[5, 1], reset[:, 2] = [True, False, False], True, False
    carry = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), CORE.initial_carry(N))
    carry["n"] = 1 + np.abs(carry["n"])
    params = jax.jit(CORE.init)(jax.random.key(0), x, carry, reset)["params"]
    params = jax.tree.map(lambda p: np.array(p + 0.3 * rng.normal(size=p.shape), np.float32), params)
    params["input"][:, : 2 * D] *= scale
    return params, x, carry, reset


@pytest.mark.slow
@pytest.mark.parametrize("length", [L, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1, 40])  # the larger one's exponentials are beyond float32, not float64
def test_the_core_is_the_papers_equations_whole_and_in_chunks(length, scale):
    params, x, carry, reset = problem(scale)
    expected, last = by_the_paper(params, x, carry, reset)
    found, carry = in_chunks(CORE, params, x, carry, reset, length)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(carry["c"] / carry["n"], last, atol=1e-4)
    assert (np.asarray(carry["n"]) >= 1).all()


@pytest.mark.slow
def test_the_first_write_of_an_episode_is_all_that_is_held():
    # However small its exponential is beside that of an empty memory, whose stored logarithm is 0.
    params, x, _, _ = problem(1)
    params["bias"][:D] = -200
    y, carry = jax.jit(CORE.apply)({"params": params}, x[:1], CORE.initial_carry(N), np.zeros((1, N), bool))
    gates = x[0] @ params["input"] + params["bias"]
    z, o = np.tanh(gates[:, 2 * D : 3 * D]), sigmoid(gates[:, 3 * D :])
    np.testing.assert_allclose(y[0], o * z, atol=1e-5)
    np.testing.assert_allclose(carry["m"], gates[:, :D], rtol=1e-5)
