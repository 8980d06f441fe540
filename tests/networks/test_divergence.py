"""Kullback-Leibler divergences by hand, by sampling, and at masks."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.base import Box, Discrete, Mixed
from jaxrl.networks.distributions import (
    Categorical,
    MultiCategorical,
    ProductDistribution,
    kl_divergence,
    mask_logits,
)
from jaxrl.networks.gaussians import Gaussian, TanhGaussian


def logits(*probabilities: float) -> jax.Array:
    return jnp.log(jnp.array(probabilities, jnp.float32))


def test_categorical_by_hand() -> None:
    found = kl_divergence(Categorical(logits(0.5, 0.25, 0.25)), Categorical(logits(0.25, 0.25, 0.5)))
    # 1/2 log 2 + 0 - 1/4 log 2
    np.testing.assert_allclose(found, 0.25 * math.log(2), rtol=1e-6)


def test_masked_actions_add_nothing_and_have_finite_gradients() -> None:
    mask = jnp.array([True, False, True])

    def of(x: jax.Array) -> jax.Array:
        taught = Categorical(mask_logits(logits(0.5, 0.2, 0.3), mask))
        return kl_divergence(taught, Categorical(mask_logits(x, mask)))

    x = jnp.array([0.1, 3.0, -2.0])
    p, q = np.array([0.5, 0.3]) / 0.8, np.exp([0.1, -2.0]) / np.exp([0.1, -2.0]).sum()
    np.testing.assert_allclose(of(x), (p * np.log(p / q)).sum(), rtol=1e-5)
    assert np.isfinite(jax.grad(of)(x)).all()
    assert jax.grad(of)(x)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Gaussian, TanhGaussian])
def test_gaussians_by_sampling(kind: type) -> None:
    p = kind(jnp.array([0.3, -0.2]), jnp.array([-0.5, 0.1]))
    q = kind(jnp.array([0.0, 0.1]), jnp.array([0.0, 0.2]))
    noise = np.random.default_rng(0).normal(size=(200_000, 2)).astype(np.float32)
    action = np.asarray(p.mean) + np.exp(np.asarray(p.log_std)) * noise
    many = [jax.tree.map(lambda x: jnp.broadcast_to(x, action.shape), of) for of in (p, q)]
    ratio = many[0].log_prob(jnp.asarray(action)) - many[1].log_prob(jnp.asarray(action))
    np.testing.assert_allclose(kl_divergence(p, q), ratio.mean(), atol=6e-3)
    assert float(kl_divergence(p, p)) == 0


def test_parts_are_summed() -> None:
    p, q = logits(0.9, 0.1, 0.2, 0.3, 0.5), logits(0.5, 0.5, 0.4, 0.3, 0.3)
    one = kl_divergence(Categorical(p[:2]), Categorical(q[:2]))
    two = kl_divergence(Categorical(p[2:]), Categorical(q[2:]))
    found = kl_divergence(MultiCategorical(p, (2, 3)), MultiCategorical(q, (2, 3)))
    np.testing.assert_allclose(found, one + two, rtol=1e-6)
    space = Mixed((("a", Discrete(2)), ("b", Box.of(-1, 1, (1,)))))
    normal = [Gaussian(jnp.array([m]), jnp.zeros(1)) for m in (0.0, 1.0)]
    mixed = [ProductDistribution((Categorical(x[:2]), g), space) for x, g in zip((p, q), normal, strict=True)]
    np.testing.assert_allclose(kl_divergence(*mixed), one + 0.5, rtol=1e-6)


def test_of_different_kinds_there_is_none() -> None:
    with pytest.raises(TypeError, match="Categorical and Gaussian have no divergence"):
        kl_divergence(Categorical(jnp.zeros(2)), Gaussian(jnp.zeros(2), jnp.zeros(2)))
