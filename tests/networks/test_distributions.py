"""Distributions against scipy, exact inverse-CDF counts, and numerical integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from jaxrl.networks import distributions, gaussians
from jaxrl.networks.distributions import Categorical, MultiCategorical
from jaxrl.networks.gaussians import Gaussian, TanhGaussian
from tests.compiled_methods import compiled_method

RNG_SEED = 7
HALF = np.ones((3, 5), jnp.bfloat16)

# One program each: operation by operation, a test would compile dozens.
jit_sample = compiled_method("sample")
jit_log_prob = compiled_method("log_prob")
jit_entropy = compiled_method("entropy")
jit_mode = compiled_method("mode")


def random_logits(*shape):
    return jnp.asarray(np.random.default_rng(RNG_SEED).normal(scale=2.0, size=shape), jnp.float32)


# 100 takes the prefix sum that is not unrolled.
@pytest.mark.parametrize("num_categories", [1, 18, pytest.param(100, marks=pytest.mark.slow)])
def test_categorical_sample_inverts_the_cdf(num_categories):
    logits = random_logits(num_categories)
    grid = ((np.arange(100_000) + 0.5) / 100_000).astype(np.float32)
    action = jit_sample(Categorical(np.broadcast_to(logits, (100_000, num_categories))), grid)
    counts = np.bincount(action, minlength=num_categories)
    # Evenly spaced noise leaves no chance: each count is exact up to the grid points at its two edges.
    np.testing.assert_allclose(counts, 100_000 * scipy.special.softmax(logits), atol=2)
    assert action.dtype == jnp.int32
    assert np.all(np.diff(action) >= 0)


def test_categorical_sample_by_hand():
    # Probabilities 1/4, 1/2, 1/4: the CDF steps at 0.25 and 0.75.
    logits = np.broadcast_to(np.log(np.array([1, 2, 1], np.float32)), (5, 3))
    action = jit_sample(Categorical(logits), np.array([0.0, 0.24, 0.26, 0.74, 0.76], np.float32))
    np.testing.assert_array_equal(action, [0, 0, 1, 1, 2])


@pytest.mark.parametrize("num_categories", [6, pytest.param(64, marks=pytest.mark.slow), 65])
def test_impossible_actions_are_never_sampled(num_categories):
    # A forbidden action may be an illegal move, or out of bounds for an environment written in C; so the
    # guarantee must hold at the ends of [0, 1), and at 1.0, which a float32 cast of a double can produce.
    rng = np.random.default_rng(RNG_SEED)
    batch = 4096
    mask = rng.random((batch, num_categories)) < 0.3
    mask[np.arange(batch), rng.integers(num_categories, size=batch)] = True
    logits = jnp.asarray(rng.normal(scale=20.0, size=mask.shape), jnp.float32)
    dist = Categorical(distributions.mask_logits(logits, jnp.asarray(mask)))
    for noise in [0.0, 2.0**-24, 0.5, 1 - 2.0**-23, 1 - 2.0**-24, 1.0, rng.random(batch)]:
        action = jit_sample(dist, np.broadcast_to(np.asarray(noise, np.float32), (batch,)))
        assert mask[np.arange(batch), action].all(), noise


def test_underflowed_last_action_is_not_sampled_at_the_top_of_the_noise():
    dist = Categorical(jnp.array([[0.0, 1.0, -200.0], [-200.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(jit_sample(dist, jnp.array([1.0, 0.0])), [1, 1])


def test_categorical_against_scipy():
    logits = random_logits(50, 6)
    probs = scipy.special.softmax(np.asarray(logits, np.float64), axis=-1)
    action = jnp.asarray(np.random.default_rng(RNG_SEED).integers(6, size=50), jnp.int32)
    dist = Categorical(logits)
    np.testing.assert_allclose(jit_log_prob(dist, action), np.log(probs[np.arange(50), action]), atol=2e-6)
    np.testing.assert_allclose(jit_entropy(dist), scipy.stats.entropy(probs, axis=-1), atol=2e-6)
    np.testing.assert_array_equal(jit_mode(dist), probs.argmax(-1))


def test_categorical_log_prob_gradient_is_one_hot_minus_softmax():
    logits = random_logits(5)
    gradient = jax.jit(jax.grad(lambda x: Categorical(x).log_prob(jnp.int32(3))))(logits)
    np.testing.assert_allclose(gradient, np.eye(5)[3] - scipy.special.softmax(logits), atol=1e-6)


def test_masked_categorical_equals_the_distribution_over_the_legal_actions():
    # correctness 16: -inf would make 0 * -inf = NaN in the entropy, and NaN in both gradients.
    logits = random_logits(7)
    mask = jnp.array([True, False, True, True, False, False, True])
    legal = np.flatnonzero(mask)

    def masked(x):
        return Categorical(distributions.mask_logits(x, mask))

    def only_legal(x):
        return Categorical(x[legal])

    @jax.jit
    def entropies(x):
        both = (lambda x: masked(x).entropy(), lambda x: only_legal(x).entropy())
        return [jax.value_and_grad(entropy)(x) for entropy in both]

    (found, found_gradient), (expected, expected_gradient) = entropies(logits)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found_gradient, expected_gradient, atol=1e-6)
    log_prob = jax.jit(jax.value_and_grad(lambda x, action: masked(x).log_prob(action)))
    np.testing.assert_allclose(
        log_prob(logits, legal[2].astype(np.int32))[0],
        jit_log_prob(only_legal(logits), np.int32(2)),
        atol=1e-6,
    )
    for action in range(7):
        value, gradient = log_prob(logits, np.int32(action))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
    assert log_prob(logits, np.int32(1))[0] < -1e8


def test_single_legal_action_has_no_entropy_and_no_gradient():
    mask = jnp.array([False, True, False])

    def entropy(x):
        return Categorical(distributions.mask_logits(x, mask)).entropy()

    value, gradient = jax.jit(jax.value_and_grad(entropy))(jnp.array([5.0, -3.0, 2.0]))
    assert value == 0.0
    np.testing.assert_array_equal(gradient, 0.0)


def test_no_mask_keeps_the_logits():
    np.testing.assert_array_equal(distributions.mask_logits(random_logits(3), None), random_logits(3))


@pytest.mark.parametrize("nvec", [(2, 5, 3), pytest.param((4,), marks=pytest.mark.slow)])
def test_multi_categorical_sums_its_components(nvec):
    # correctness 16: multi-discrete heads are summed, in log-probability and entropy.
    logits = random_logits(20, sum(nvec))
    parts = [Categorical(x) for x in np.split(np.asarray(logits), np.cumsum(nvec)[:-1], axis=-1)]
    dist = MultiCategorical(logits, nvec)
    noise = np.asarray(distributions.draw_noise(dist.noise_kind, jax.random.key(0), (20, len(nvec))))

    @jax.jit
    def of_parts(noise, action):
        columns = [(p, noise[:, i], action[:, i]) for i, p in enumerate(parts)]
        return (
            jnp.stack([p.sample(u) for p, u, _ in columns], axis=-1),
            sum(p.log_prob(a) for p, _, a in columns),
            sum(p.entropy() for p in parts),
            jnp.stack([p.mode() for p in parts], axis=-1),
        )

    action = jit_sample(dist, noise)
    expected, log_prob, entropy, mode = of_parts(noise, action)
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_allclose(jit_log_prob(dist, action), log_prob, atol=1e-6)
    np.testing.assert_allclose(jit_entropy(dist), entropy, atol=1e-6)
    np.testing.assert_array_equal(jit_mode(dist), mode)


def test_multi_categorical_padding_stays_impossible_when_a_component_is_all_masked():
    nvec = (2, 4)
    mask = jnp.array([False, False, True, True, True, True])
    logits = distributions.mask_logits(jnp.zeros((64, 6)), np.broadcast_to(mask, (64, 6)))
    dist = MultiCategorical(logits, nvec)
    noise = np.broadcast_to(np.linspace(0.0, 1.0, 64, dtype=np.float32)[:, None], (64, 2))
    action = np.asarray(jit_sample(dist, noise))
    assert action[:, 0].max() == 1
    assert action[:, 1].max() == 3
    gradient = jax.jit(jax.grad(lambda x: MultiCategorical(x, nvec).entropy().sum()))
    assert np.isfinite(gradient(logits)).all()


def test_gaussian_against_scipy():
    rng = np.random.default_rng(RNG_SEED)
    mean, log_std, noise = (jnp.asarray(rng.normal(size=(30, 4)), jnp.float32) for _ in range(3))
    dist = Gaussian(mean, log_std)
    action = jit_sample(dist, noise)
    mean, log_std, noise = map(np.asarray, (mean, log_std, noise))
    oracle = scipy.stats.norm(mean.astype(np.float64), np.exp(log_std.astype(np.float64)))
    np.testing.assert_allclose(action, mean + np.exp(log_std) * noise, atol=1e-5)
    np.testing.assert_allclose(jit_log_prob(dist, action), oracle.logpdf(action).sum(-1), atol=2e-5)
    np.testing.assert_allclose(jit_entropy(dist), oracle.entropy().sum(-1), atol=1e-5)
    np.testing.assert_array_equal(jit_mode(dist), mean)


def test_gaussian_action_is_not_clipped():
    # correctness 15: the log-probability is the unclipped action's, so the distribution must not clip.
    dist = Gaussian(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    action = jit_sample(dist, jnp.array([[4.0]]))
    assert action == 4.0
    np.testing.assert_allclose(jit_log_prob(dist, action), scipy.stats.norm.logpdf(4.0), rtol=1e-6)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.5), (-1.5, 2.0)])
def test_tanh_gaussian_density_integrates_to_one(mean, std):
    dist = TanhGaussian(jnp.array([mean]), jnp.log(jnp.array([std])))
    u = np.linspace(-12.0, 12.0, 100_001)
    log_density = jax.jit(jax.vmap(dist.log_prob))(u[:, None].astype(np.float32))
    # Over a = tanh(u); evenly spaced u put the nodes where the density of a is steep, at the bounds.
    mass = scipy.integrate.trapezoid(np.exp(np.asarray(log_density, np.float64)), np.tanh(u))
    np.testing.assert_allclose(mass, 1.0, atol=1e-4)


def test_tanh_gaussian_log_prob_is_stable_where_tanh_saturates():
    # correctness 15: log(1 - tanh(u)^2) is -inf from |u| = 10 in float32; the true value is 2 log 2 - 2 |u|.
    log_prob = jax.jit(jax.value_and_grad(TanhGaussian(jnp.zeros(1), jnp.zeros(1)).log_prob))
    for u in (-200.0, -20.0, 0.0, 20.0, 200.0):
        value, gradient = log_prob(np.array([u], np.float32))
        log_det = 2 * np.log(2) - 2 * abs(u) - 2 * np.log1p(np.exp(-2 * abs(u)))
        np.testing.assert_allclose(value, scipy.stats.norm.logpdf(u) - log_det, rtol=1e-6)
        np.testing.assert_allclose(gradient, -u + 2 * np.tanh(u), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.3, 2.0])
def test_tanh_gaussian_entropy_equals_that_of_a_million_samples(std):
    # correctness 15: the Gaussian formula is not the entropy of the squashed action.
    mean = jnp.array([0.0, 0.8, -2.5])
    dist = TanhGaussian(mean, np.full(3, np.log(std), np.float32))
    noise = np.random.default_rng(RNG_SEED).normal(size=(1_000_000, 3))
    u = np.asarray(mean, np.float64) + std * noise
    log_det = 2 * (np.log(2) - np.abs(u) - np.log1p(np.exp(-2 * np.abs(u))))
    samples = -(scipy.stats.norm.logpdf(noise) - np.log(std) - log_det).sum(-1)
    standard_error = samples.std() / 1e3
    assert abs(float(jit_entropy(dist)) - samples.mean()) < 5 * standard_error + 3 * 4e-3 * (std > 1)
    assert float(jit_entropy(Gaussian(mean, dist.log_std))) - samples.mean() > 50 * standard_error


def test_tanh_gaussian_entropy_gradient():
    @jax.jit
    def entropy(mean, log_std):
        found = lambda mean, log_std: TanhGaussian(mean[None], log_std[None]).entropy()  # noqa: E731
        return jax.value_and_grad(found, argnums=(0, 1))(jnp.asarray(mean), jnp.asarray(log_std))

    def exact(mean, log_std):
        def integrand(z):
            u = abs(mean + np.exp(log_std) * z)
            return scipy.stats.norm.pdf(z) * 2 * (np.log(2) - u - np.log1p(np.exp(-2 * u)))

        expectation = scipy.integrate.quad(integrand, -12, 12, limit=200, points=[-mean / np.exp(log_std)])[0]
        return expectation + log_std + 0.5 * np.log(2 * np.pi * np.e)

    for mean, log_std in [(0.3, -1.0), (0.0, 0.0), (1.2, 0.3)]:
        value, gradient = entropy(np.float32(mean), np.float32(log_std))
        np.testing.assert_allclose(value, exact(mean, log_std), atol=5e-4)
        h = 1e-4
        by_mean = (exact(mean + h, log_std) - exact(mean - h, log_std)) / (2 * h)
        by_log_std = (exact(mean, log_std + h) - exact(mean, log_std - h)) / (2 * h)
        np.testing.assert_allclose(gradient, (by_mean, by_log_std), atol=2e-3)


def test_tanh_gaussian_keeps_the_pre_squash_action():
    # correctness 15: recovering u by atanh fails once tanh rounds to 1.
    dist = TanhGaussian(jnp.array([3.0]), jnp.zeros(1))
    np.testing.assert_allclose(dist.sample(jnp.array([9.0])), [12.0])
    np.testing.assert_allclose(dist.mode(), [3.0])


def test_squash_maps_onto_the_bounds():
    # In float32, -1 + (0.7 - -1) is above 0.7: an environment that checks its bounds would refuse it.
    low, high = np.float32([-2.0, -1.0, 0.0]), np.float32([2.0, 0.7, 10.0])
    np.testing.assert_allclose(gaussians.squash(jnp.zeros(3), low, high), [0.0, -0.15, 5.0], atol=1e-6)
    u = np.linspace(-30.0, 30.0, 1001, dtype=np.float32)[:, None]
    action = np.asarray(jax.jit(gaussians.squash)(np.broadcast_to(u, (1001, 3)), low, high))
    assert (action >= low[None]).all()
    assert (action <= high[None]).all()
    np.testing.assert_array_equal(action[0], low)
    np.testing.assert_array_equal(action[-1], high)
    np.testing.assert_allclose(gaussians.squash(jnp.array([0.5]), -2.0, 2.0), [2 * np.tanh(0.5)], rtol=1e-6)


def test_squash_is_undone_also_where_both_bounds_are_the_same():
    low, high = np.float32([-2.0, 3.0]), np.float32([2.0, 3.0])
    u = gaussians.unsquash(jnp.array([[1.0, 3.0], [-1.9, 3.0]]), low, high)
    np.testing.assert_allclose(u, [[np.arctanh(0.5), 0.0], [np.arctanh(-0.95), 0.0]], rtol=1e-5)
    np.testing.assert_allclose(gaussians.squash(u, low, high), [[1.0, 3.0], [-1.9, 3.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("dist", "action"),
    [
        (Categorical(HALF[:, :4]), np.zeros(3, np.int32)),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in (
                (MultiCategorical(HALF[:, :5], (2, 3)), np.zeros((3, 2), np.int32)),
                (Gaussian(HALF[:, :2], HALF[:, :2]), np.zeros((3, 2), np.float32)),
                (TanhGaussian(HALF[:, :2], HALF[:, :2]), np.zeros((3, 2), np.float32)),
            )
        ),
    ],
)
def test_bfloat16_parameters_give_float32_results(dist, action):
    # correctness 22: a bfloat16 log-probability has an error of 0.4%, which is the whole PPO clip range.
    in_float32 = jax.tree.map(lambda x: x.astype(jnp.float32), dist)
    for result, expected in [
        (jit_log_prob(dist, action), jit_log_prob(in_float32, action)),
        (jit_entropy(dist), jit_entropy(in_float32)),
    ]:
        assert result.dtype == jnp.float32
        assert result.shape == (3,)
        np.testing.assert_array_equal(result, expected)
    noise = distributions.draw_noise(dist.noise_kind, jax.random.key(0), action.shape)
    assert jit_sample(dist, noise).dtype == jit_mode(dist).dtype == action.dtype


def test_draw_noise():
    key = jax.random.key(RNG_SEED)
    uniform = np.asarray(distributions.draw_noise("uniform", key, (1000, 100)))
    assert uniform.dtype == jnp.float32
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert scipy.stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    normal = np.asarray(distributions.draw_noise("normal", key, (1000, 100)))
    assert normal.dtype == jnp.float32
    assert scipy.stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    with pytest.raises(ValueError, match="noise kind"):
        distributions.draw_noise("gumbel", key, ())
