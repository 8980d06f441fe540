"""The gated cores at their start."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.cores import Recurrent
from jaxrl.networks.kernels.cells import GRU, LSTM


@pytest.mark.slow
def test_forget_gates_start_open() -> None:
    """Jozefowicz et al. 2015, section 2.2: a bias of 1 in the gate that multiplies the cell's state."""
    size = 3
    for cell in (LSTM, GRU):
        core = Recurrent(size, cell)
        carry = core.initial_carry(1)
        given = (jnp.zeros((1, 1, 2)), carry, jnp.zeros((1, 1), bool))
        params = jax.jit(core.init)(jax.random.key(0), *given)["params"]
        bias = np.asarray(params["bias"])
        expected = np.zeros_like(bias)
        if cell is LSTM:
            expected[size : 2 * size] = 1  # input, forget, cell, output
        np.testing.assert_array_equal(bias, expected)
        if cell is not LSTM:
            continue
        # Without input and weights that matter the cell keeps sigmoid(1) of its state at each step.
        variables = {"params": params | {"recurrent": jnp.zeros_like(params["recurrent"])}}
        kept = jax.jit(core.apply)(variables, given[0], {**carry, "c": jnp.ones((1, size))}, given[2])[1]
        np.testing.assert_allclose(kept["c"], 1 / (1 + np.exp(-1.0)), rtol=1e-6)
