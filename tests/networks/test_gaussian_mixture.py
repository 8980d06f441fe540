"""The mixture of Gaussians against plain loops, integrals, and its two limits."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jaxrl.envs.base import Box, EnvSpec
from jaxrl.networks.distributions import draw_noise, kl_divergence
from jaxrl.networks.gaussian_mixture import LEAST_STD, GaussianMixture
from jaxrl.networks.gaussians import Gaussian
from jaxrl.networks.heads import build_head
from tests.compiled_methods import compiled_method
from tests.compiled_programs import tiny_config

BATCH, COMPONENTS, SIZE = 6, 4, 3
# One program each: operation by operation, a test would compile dozens.
sample = compiled_method("sample")
log_prob = compiled_method("log_prob")
entropy = compiled_method("entropy")


def drawn(seed: int, spread: float = 1.0) -> GaussianMixture:
    rng = np.random.default_rng(seed)
    shape = (BATCH, COMPONENTS, SIZE)
    logits, mean, log_std = (rng.normal(size=s) for s in (shape[:2], shape, shape))
    return GaussianMixture(*(jnp.asarray(x, jnp.float32) for x in (logits, spread * mean, 0.5 * log_std)))


def one(probabilities: list[float], mean: list[float], std: list[float]) -> GaussianMixture:
    """A mixture over one number."""
    log = lambda x: np.log(np.array(x, np.float32))  # noqa: E731
    return GaussianMixture(log(probabilities), np.array(mean, np.float32)[:, None], log(std)[:, None])


def reference(logits, mean, log_std, action):
    """(log-density, its gradients with respect to logits, mean and log_std) of one action, in float64.

    Of component k with responsibility r: r - w; r (a - m) / s^2; r (z^2 - 1).
    """
    weights = [math.exp(x) for x in logits]
    weights = [x / sum(weights) for x in weights]
    densities = []
    for k in range(COMPONENTS):
        density = weights[k]
        for d in range(SIZE):
            std = math.exp(log_std[k][d])
            z = (action[d] - mean[k][d]) / std
            density *= math.exp(-0.5 * z * z) / (std * math.sqrt(2 * math.pi))
        densities.append(density)
    total = sum(densities)
    by_logits, by_mean, by_log_std = [], np.zeros((COMPONENTS, SIZE)), np.zeros((COMPONENTS, SIZE))
    for k in range(COMPONENTS):
        share = densities[k] / total
        by_logits.append(share - weights[k])
        for d in range(SIZE):
            z = (action[d] - mean[k][d]) / math.exp(log_std[k][d])
            by_mean[k, d] = share * z / math.exp(log_std[k][d])
            by_log_std[k, d] = share * (z * z - 1)
    return math.log(total), by_logits, by_mean, by_log_std


def test_log_prob_and_its_gradient_are_those_of_a_plain_loop() -> None:
    mixture = jax.tree.map(np.asarray, drawn(0))
    action = np.random.default_rng(1).normal(size=(BATCH, SIZE)).astype(np.float32)
    value_and_gradient = jax.jit(jax.value_and_grad(lambda m, a: m.log_prob(a).sum()))
    found, gradient = log_prob(mixture, action), value_and_gradient(mixture, action)[1]
    found, gradient = jax.tree.map(np.asarray, (found, gradient))
    for i in range(BATCH):
        parts = (mixture.logits[i], mixture.mean[i], mixture.log_std[i], action[i])
        value, *expected = reference(*(np.asarray(x, np.float64).tolist() for x in parts))
        np.testing.assert_allclose(found[i], value, rtol=1e-5)
        ours = (gradient.logits[i], gradient.mean[i], gradient.log_std[i])
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # An action far from all components has a density that float32 cannot hold; its logarithm it can.
    far = value_and_gradient(mixture, action + 300.0)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(far))
    assert float(far[0]) < -1e4


def test_samples_are_of_one_component_each() -> None:
    mixture, count = one([0.2, 0.5, 0.3], [-5.0, 0.0, 7.0], [0.1, 0.2, 0.5]), 10_000
    many = jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), mixture)
    # Evenly spaced quantiles leave no chance in the choice of components.
    picks = scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)
    noise = np.stack([np.random.default_rng(0).normal(size=count), picks], axis=-1).astype(np.float32)
    action = np.asarray(sample(many, noise))[:, 0]
    component = np.searchsorted([0.2, 0.7], (np.arange(count) + 0.5) / count)
    expected = np.array([-5.0, 0.0, 7.0])[component] + np.array([0.1, 0.2, 0.5])[component] * noise[:, 0]
    edges = np.abs(np.subtract.outer((np.arange(count) + 0.5) / count, [0.2, 0.7])).min(axis=1) < 1e-3
    np.testing.assert_allclose(action[~edges], expected[~edges], atol=1e-5)
    np.testing.assert_array_equal(mixture.mode(), [0.0])


@pytest.mark.slow
def test_entropy_is_exact_at_its_limits_and_a_bound_between() -> None:
    gaussian = Gaussian(jnp.array([0.3]), jnp.log(jnp.array([0.7])))
    same = one([0.2, 0.8], [0.3, 0.3], [0.7, 0.7])
    np.testing.assert_allclose(entropy(same), entropy(gaussian), rtol=1e-6)
    apart = one([0.2, 0.8], [-100.0, 100.0], [0.5, 2.0])
    weights, std = np.array([0.2, 0.8]), np.array([0.5, 2.0])
    exact = -(weights * np.log(weights)).sum() + (weights * scipy.stats.norm(0, std).entropy()).sum()
    np.testing.assert_allclose(entropy(apart), exact, rtol=1e-6)
    grid = np.linspace(-20.0, 20.0, 20_001, dtype=np.float32)
    between = [one([0.4, 0.6], [-mean, mean], [1.0, 0.6]) for mean in (0.5, 1.0, 2.0, 4.0)]
    mixtures = jax.tree.map(lambda *x: np.stack(x), *between)
    points = np.broadcast_to(grid[:, None, None], (len(grid), 4, 1))
    at_points = jax.tree.map(lambda x: np.broadcast_to(x, (len(grid), *x.shape)), mixtures)
    log_p = np.asarray(log_prob(at_points, points), np.float64)
    true = -scipy.integrate.trapezoid(np.exp(log_p) * log_p, grid, axis=0)
    assert (true - 0.2 < np.asarray(entropy(mixtures))).all()
    assert (np.asarray(entropy(mixtures)) <= true + 1e-4).all()
    gradient = jax.jit(jax.grad(lambda m: m.entropy().sum()))(drawn(2))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_divergence_bounds_that_of_samples_from_above() -> None:
    p, q = drawn(3), drawn(4)
    p, q = jax.tree.map(np.asarray, (p, q))
    divergence = jax.jit(kl_divergence)
    np.testing.assert_allclose(divergence(p, p), 0.0, atol=1e-6)
    q = dataclasses.replace(p, logits=p.logits + 0.5 * q.logits, mean=p.mean + 0.2 * q.mean)
    count = 4_000
    many = [jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), m) for m in (p, q)]
    action = sample(many[0], jax.random.normal(jax.random.key(0), (count, BATCH, SIZE + 1)))
    sampled = np.asarray(log_prob(many[0], action)) - np.asarray(log_prob(many[1], action))
    error = 4 * sampled.std(axis=0) / math.sqrt(count)
    bound = np.asarray(divergence(p, q))
    assert (bound > sampled.mean(axis=0) - error).all()
    assert (bound < 20 * sampled.mean(axis=0) + 0.5).all()
    # Of one component it is exact.
    single = [GaussianMixture(jnp.zeros((BATCH, 1)), m.mean[:, :1], m.log_std[:, :1]) for m in (p, q)]
    gaussians = [Gaussian(m.mean[:, 0], m.log_std[:, 0]) for m in single]
    np.testing.assert_allclose(divergence(*single), divergence(*gaussians), rtol=1e-5)


@pytest.mark.slow
def test_head_begins_with_components_apart_within_the_bounds() -> None:
    space = Box.of((-2.0, 0.0, -np.inf, 7.0), (2.0, 0.5, np.inf, 3e38), (4,))
    network = dataclasses.replace(tiny_config().network, head="gaussian_mixture", mixture_components=4)
    head = build_head(network, EnvSpec("test:Env", space, space))
    features = jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)), jnp.float32)
    noise = np.asarray(draw_noise(head.noise_kind, jax.random.key(1), (16, *head.noise_shape)))

    @jax.jit
    def act() -> tuple[GaussianMixture, jax.Array]:
        mixture, _ = head.module.init_with_output(jax.random.key(0), features, None)
        return mixture, head.to_env(3.0 * mixture.sample(noise))

    mixture, action = jax.tree.map(np.asarray, act())
    assert mixture.mean.shape == (16, 4, 4)
    # In the policy's own numbers: the second component of the space is scaled.
    assert (np.abs(np.asarray(mixture.mean)) < 1.1).all()
    distances = np.abs(np.asarray(mixture.mean[0])[:, None] - np.asarray(mixture.mean[0])[None]).max(axis=-1)
    assert distances[np.triu_indices(4, 1)].min() > 0.05
    np.testing.assert_allclose(np.exp(mixture.logits).mean(), 1.0, atol=0.05)
    assert np.exp(mixture.log_std).min() > LEAST_STD
    assert action.shape == (16, 4)
    assert ((action[:, :2] >= [-2.0, 0.0]) & (action[:, :2] <= [2.0, 0.5])).all()
