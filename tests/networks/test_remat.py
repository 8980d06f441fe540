"""Recomputed activations: the gradients of a network without them, in less memory."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import rounding
from tests.networks.test_network import build

L, N, UNITS = 32, 16, 24
# A stack, for all.
CASES = [
    pytest.param("lstm", 1, marks=pytest.mark.long),
    pytest.param("mingru", 3, marks=pytest.mark.slow),
    pytest.param("gtrxl", 2, marks=pytest.mark.long),
]


@functools.cache
def networks(core, layers):
    """(network, the same with recomputed activations), of a separate trunk for the value."""
    fields = {"core": core, "core_layers": layers, "core_size": UNITS, "hidden_sizes": (2 * UNITS, UNITS)}
    return build(**fields), build(remat=True, **fields)


def problem(network):
    """(params, arguments of a sequence after them)."""
    obs_key, reset_key = jax.random.split(jax.random.key(1))
    obs, reset = jax.random.normal(obs_key, (L, N, 3)), jax.random.bernoulli(reset_key, 0.2, (L, N))
    return jax.jit(network.init)(jax.random.key(0)), (obs, network.initial_carry(N), reset, None)


def loss(network, arguments, params):
    return jnp.sum(jnp.sin(network.apply(params, *arguments).heads["value"]))


@pytest.mark.parametrize(("core", "layers"), CASES)
def test_parameters_and_gradients_are_those_without(core, layers):
    plain, remat = networks(core, layers)
    params, arguments = problem(plain)
    for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(problem(remat)[0]), strict=True):
        np.testing.assert_array_equal(x, y)
    expected, found = (
        jax.jit(jax.grad(functools.partial(loss, network, arguments)))(params) for network in (plain, remat)
    )
    # Sums over all rows, whose order alone may differ.
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(
            y, x, atol=rounding.of_sums(L * N, size=float(jnp.abs(x).max())), rtol=1e-4
        )


@pytest.mark.parametrize(
    ("core", "layers"),
    [("mingru", 3), *(pytest.param(*x, marks=pytest.mark.slow) for x in (("lstm", 1), ("gtrxl", 2)))],
)
def test_names_of_layers_are_those_without(core, layers):
    obs, reset = jnp.zeros((L, N, 3)), jnp.zeros((L, N), bool)

    def names(network):
        found = []

        def run(params):
            found.extend(
                name for name, _ in network.layers(params, obs, network.initial_carry(N), reset, None)
            )

        jax.eval_shape(run, jax.eval_shape(network.init, jax.random.key(0)))
        return found

    plain, remat = map(names, networks(core, layers))
    assert plain
    assert plain == remat


@pytest.mark.parametrize(("core", "layers"), CASES)
def test_the_backward_pass_is_given_the_inputs_of_layers_alone(core, layers):
    plain, remat = networks(core, layers)
    params, arguments = problem(plain)

    def kept(network):
        """The shapes of arrays of all steps that go from the forward to the backward pass."""
        of_params = functools.partial(loss, network, arguments)
        backward = jax.eval_shape(lambda params: jax.vjp(of_params, params)[1], params)
        shapes = [x.shape for x in jax.tree.leaves(backward) if x.shape[:2] == (L, N)]
        return [shape for shape in shapes if math.prod(shape[2:]) >= UNITS]

    # The input of each layer, and what the head reads; the encoder's input is narrower, and given anyway.
    assert kept(remat) == [(L, N, UNITS)] * (layers + 1)
    assert len(kept(plain)) > 2 * (layers + 1)
