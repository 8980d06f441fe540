"""The recurrence and its hand-written backward pass, against plain autodiff, flax and numpy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.cores import Recurrent
from jaxrl.networks.kernels.cells import GRU, LSTM, SLSTM
from jaxrl.networks.kernels.recurrent_scan import recurrent_scan, scan_forward, storing_each, storing_one
from tests import rounding

L, N, F, H = 9, 5, 3, 4
CELLS = {"lstm": LSTM, "gru": GRU, "slstm": SLSTM}
each_cell = pytest.mark.parametrize(
    "kind", ["lstm", *(pytest.param(x, marks=pytest.mark.slow) for x in ("gru", "slstm"))]
)


def problem(kind, length=L, seed=0):
    """(cell, weight, inputs, carry, reset) with resets inside, at the first and at the last step."""
    cell = CELLS[kind]
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    reset = rng.random((length, N)) < 0.3
    reset[0, 0] = reset[-1, 1] = True
    reset[:, 2] = False
    carry = {name: normal(N, H) for name in cell.state}
    if "n" in carry:
        carry["n"] = 1 + jnp.abs(carry["n"])
    return cell, normal(H, cell.gates * H), normal(length, N, cell.gates * H), carry, jnp.asarray(reset)


def plain_scan(cell, weight, inputs, carry, reset):
    """The same recurrence as anyone would write it, for JAX to differentiate."""

    def step(carry, xs):
        x, r = xs
        carry = jax.tree.map(lambda y: jnp.where(r[:, None], 0.0, y), carry)
        carry, _ = cell.forward(x, carry["h"] @ weight, carry)
        return carry, carry["h"]

    carry, h = jax.lax.scan(step, carry, (inputs, reset))
    return h, carry


@each_cell
@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.slow), L])
def test_values_and_gradients_equal_autodiff_of_a_plain_scan(kind, length):
    cell, weight, inputs, carry, reset = problem(kind, length)
    weights = [jnp.asarray(np.random.default_rng(i).normal(size=(length, N, H)), jnp.float32) for i in (1, 2)]

    def loss(run):
        def value(weight, inputs, carry):
            h, last = run(weight, inputs, carry)
            # All outputs count, each with a weight of its own; the last carry too.
            return (h * weights[0]).sum() + sum((x * weights[1][0]).sum() for x in last.values())

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))

    ours = loss(lambda w, x, c: recurrent_scan(cell, jnp.float32, w, x, c, reset))
    oracle = loss(lambda w, x, c: plain_scan(cell, w, x, c, reset))
    got, expected = ours(weight, inputs, carry), oracle(weight, inputs, carry)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, expected)
    assert float(jnp.abs(got[1][0]).min()) > 0


@pytest.mark.parametrize("kind", CELLS)
def test_nothing_flows_back_over_a_reset(kind):
    # correctness 5: the gradient too stops at the episode's first step, in every part of the carry.
    cell, weight, inputs, carry, _ = problem(kind)
    reset = jnp.zeros((L, N), bool).at[4, :3].set(True)

    def late(inputs, carry):
        return recurrent_scan(cell, jnp.float32, weight, inputs, carry, reset)[0][4:].sum(axis=(0, 2)).sum()

    d_inputs, d_carry = jax.tree.map(np.asarray, jax.jit(jax.grad(late, argnums=(0, 1)))(inputs, carry))
    np.testing.assert_array_equal(d_inputs[:4, :3], 0.0)
    assert (np.abs(d_inputs[:4, 3:]).sum(axis=(0, 2)) > 0).all()
    for part in d_carry.values():
        np.testing.assert_array_equal(part[:3], 0.0)
        assert (np.abs(part[3:]).sum(axis=1) > 0).all()


@pytest.fixture(scope="module")
def inputs_and_carry():
    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.normal(size=(L, N, F)), jnp.float32)
    return x, {name: jnp.asarray(rng.normal(size=(N, H)), jnp.float32) for name in ("c", "h")}


@pytest.mark.slow
def test_lstm_equals_that_of_flax(inputs_and_carry):
    x, carry = inputs_and_carry
    reset = jnp.zeros((L, N), bool)
    core = Recurrent(H, LSTM)
    params = jax.tree.map(np.asarray, jax.jit(core.init)(jax.random.key(0), x, carry, reset)["params"])
    input_blocks = np.split(params["input"], 4, axis=1)
    recurrent_blocks = np.split(params["recurrent"], 4, axis=1)
    biases = np.split(params["bias"], 4)
    theirs = {}
    for gate, w, u, b in zip("ifgo", input_blocks, recurrent_blocks, biases, strict=True):
        theirs |= {f"i{gate}": {"kernel": w}, f"h{gate}": {"kernel": u, "bias": b}}
    step = jax.jit(lambda state, x: nn.OptimizedLSTMCell(H).apply({"params": theirs}, state, x))
    state, expected = (carry["c"], carry["h"]), []
    for x_t in np.asarray(x):
        state, y = step(state, x_t)
        expected.append(y)
    y, last = jax.jit(lambda p: core.apply({"params": p}, x, carry, reset))(params)
    within = rounding.of_sums(*[F + H] * L)
    np.testing.assert_allclose(y, np.stack(expected), atol=within)
    np.testing.assert_allclose(last["c"], state[0], atol=within)
    np.testing.assert_allclose(last["h"], state[1], atol=within)


@pytest.mark.slow
def test_gru_equals_its_equations_in_numpy(inputs_and_carry):
    x, carry = inputs_and_carry
    reset = jnp.zeros((L, N), bool)
    core = Recurrent(H, GRU)
    params = jax.jit(core.init)(jax.random.key(0), x, {"h": carry["h"]}, reset)["params"]
    params["bias"] = jnp.asarray(np.random.default_rng(4).normal(size=3 * H), jnp.float32)
    wr, wz, wn = np.split(np.asarray(params["input"], np.float64), 3, axis=1)
    ur, uz, un = np.split(np.asarray(params["recurrent"], np.float64), 3, axis=1)
    br, bz, bn = np.split(np.asarray(params["bias"], np.float64), 3)
    sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    h = np.asarray(carry["h"], np.float64)
    expected = []
    for x_t in np.asarray(x, np.float64):
        r = sigmoid(x_t @ wr + br + h @ ur)
        z = sigmoid(x_t @ wz + bz + h @ uz)
        candidate = np.tanh(x_t @ wn + bn + r * (h @ un))
        h = z * h + (1 - z) * candidate
        expected.append(h)
    y, last = jax.jit(lambda p: core.apply({"params": p}, x, {"h": carry["h"]}, reset))(params)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(last["h"], h, atol=1e-5)


@pytest.mark.slow
def test_lstm_starts_with_open_forget_gates_and_orthogonal_blocks(inputs_and_carry):
    x, carry = inputs_and_carry
    init = jax.jit(Recurrent(H, LSTM).init)
    params = jax.tree.map(np.asarray, init(jax.random.key(0), x, carry, jnp.zeros((L, N), bool))["params"])
    np.testing.assert_array_equal(params["bias"].reshape(4, H), [[0] * H, [1] * H, [0] * H, [0] * H])
    for block in np.split(params["recurrent"], 4, axis=1):
        np.testing.assert_allclose(block.T @ block, np.eye(H), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_bfloat16_keeps_the_carry_in_float32(kind):
    # correctness 22: the cell state sums over hundreds of steps; in bfloat16, 8 bits of mantissa, increments
    # are lost. Only the operands of the matrix products are rounded.
    rng = np.random.default_rng(5)
    core = Recurrent(H, CELLS[kind], jnp.bfloat16)
    carry = core.initial_carry(N)
    x = jnp.asarray(rng.normal(size=(L, N, F)), jnp.bfloat16)
    reset = jnp.zeros((L, N), bool)
    params = jax.jit(core.init)(jax.random.key(0), x, carry, reset)["params"]
    y, last = jax.jit(core.apply)({"params": params}, x, carry, reset)
    assert y.dtype == jnp.bfloat16
    for leaf in jax.tree.leaves((params, carry, last)):
        assert leaf.dtype == jnp.float32
    kept = last["c" if kind == "lstm" else "h"]
    assert (kept != kept.astype(jnp.bfloat16).astype(jnp.float32)).any()
    exact, _ = jax.jit(Recurrent(H, CELLS[kind]).apply)(
        {"params": params}, x.astype(jnp.float32), carry, reset
    )
    np.testing.assert_allclose(y.astype(jnp.float32), exact, atol=0.03)


@each_cell
def test_the_form_for_gpus_keeps_the_same(kind):
    # 9 steps in turns of 4, with resets inside, at the first and at the last step.
    cell, *arrays = problem(kind)
    each, one = (
        jax.jit(lambda *x, form=form: scan_forward(cell, jnp.float32, *x, form=form))(*arrays)
        for form in (storing_each, storing_one)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), each, one)
