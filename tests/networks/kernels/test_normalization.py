"""Layer normalisation with a written-out gradient against numpy and against autodiff of the plain formula."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.layers import EPSILON, layer_norm


def plain(x, scale, bias, axes):
    over = tuple(range(-axes, 0))
    normal = (x - x.mean(over, keepdims=True)) / jnp.sqrt(x.var(over, keepdims=True) + EPSILON)
    return normal * jnp.broadcast_to(scale, x.shape) + jnp.broadcast_to(bias, x.shape)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axes"), [((5, 3, 7), 1), ((1,), 1), ((4, 3, 2, 6), 3), ((2, 0, 4), 1)])
def test_values_and_gradients_are_those_of_the_formula(shape, axes):
    keys = jax.random.split(jax.random.key(0), 4)
    x = 3.0 + 2.0 * jax.random.normal(keys[0], shape)
    scale, bias = jax.random.normal(keys[1], shape[-1:]), jax.random.normal(keys[2], shape[-1:])
    weights = jax.random.normal(keys[3], shape)

    def value_and_gradients(function):
        loss = lambda *arguments: jnp.sum(function(*arguments, axes) * weights)  # noqa: E731
        both = lambda *given: (function(*given, axes), *jax.grad(loss, (0, 1, 2))(*given))  # noqa: E731
        return jax.jit(both)(x, scale, bias)

    for mine, expected in zip(value_and_gradients(layer_norm), value_and_gradients(plain), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_constant_rows_have_finite_gradients():
    gradient = jax.jit(jax.grad(lambda x: layer_norm(x, jnp.ones(4), jnp.ones(4), 1)[0]))(jnp.full(4, 2.0))
    assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_members_of_a_population_have_their_own_gradients():
    keys = jax.random.split(jax.random.key(1), 2)
    x, scale = jax.random.normal(keys[0], (3, 8, 4)), jax.random.normal(keys[1], (3, 4))
    gradient = jax.grad(lambda x, scale: jnp.sum(layer_norm(x, scale, scale, 1) ** 2), (0, 1))
    together = jax.jit(jax.vmap(gradient))(x, scale)
    for member in range(3):
        for mine, alone in zip(together, gradient(x[member], scale[member]), strict=True):
            np.testing.assert_allclose(mine[member], alone, rtol=1e-5, atol=1e-5)
