"""The gate of a GRU: its equations in numpy, and its gradient beside one by differences."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.gated_transformer import GateWeights, gru_gate


def test_values_are_those_of_the_equations_and_gradients_those_of_differences():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, 3, 4))
    weights = GateWeights(*(rng.normal(size=shape) for shape in ((4, 12), (4, 8), (4,), (4, 4))))
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), (x, y, weights))

    def expected(distance):
        x_, y_, w = jax.tree.map(lambda a, d: a + distance * d, (x, y, weights), direction)
        of_y = np.maximum(y_, 0) @ w.input
        r, z = np.split(of_y[..., :8] + x_ @ w.state, 2, axis=-1)
        sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
        z = sigmoid(z - w.bias)
        return (1 - z) * x_ + z * np.tanh(of_y[..., 8:] + (sigmoid(r) * x_) @ w.candidate)

    as_float32 = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)  # noqa: E731
    values, slope = jax.jit(_backwards)(as_float32((x, y, weights)), as_float32(direction))
    np.testing.assert_allclose(values, expected(0.0), atol=1e-5)
    by_differences = (expected(1e-5) - expected(-1e-5)).sum() / 2e-5
    np.testing.assert_allclose(slope, by_differences, rtol=1e-4)


def _backwards(arguments, direction):
    """The gate, and how fast its sum grows in a direction, by its gradient."""
    values, backwards = jax.vjp(gru_gate, *arguments)
    products = jax.tree.map(jnp.vdot, backwards(jnp.ones_like(values)), direction)
    return values, sum(jax.tree.leaves(products))
