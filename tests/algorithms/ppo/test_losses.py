"""Losses against plain numpy, by hand, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo import losses


def batch(seed=0, size=500):
    rng = np.random.default_rng(seed)
    return (rng.normal(scale=0.4, size=(4, size))).astype(np.float32)


def test_policy_loss_against_numpy():
    log_prob, old_log_prob, adv, _ = batch()
    expected = []
    for new, old, a in zip(*(x.astype(np.float64) for x in (log_prob, old_log_prob, adv)), strict=True):
        ratio = np.exp(new) / np.exp(old)
        expected.append(-min(ratio * a, min(max(ratio, 0.8), 1.2) * a))
    np.testing.assert_allclose(losses.policy_loss(log_prob, old_log_prob, adv, 0.2), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "adv", "loss", "slope"),  # slope: by the log-probability, -ratio * advantage or 0
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.4, 0.0),  # gone far enough up already
        (0.5, 2.0, -1.0, -1.0),  # went the wrong way: pull it back
        (0.5, -2.0, 1.6, 0.0),  # gone far enough down already
        (1.5, -2.0, 3.0, 3.0),
        (1.1, 2.0, -2.2, -2.2),
    ],
)
def test_policy_loss_and_gradient_by_hand(ratio, adv, loss, slope):
    value, gradient = jax.value_and_grad(losses.policy_loss)(
        jnp.log(jnp.float32(ratio)), jnp.float32(0.0), jnp.float32(adv), 0.2
    )
    np.testing.assert_allclose([value, gradient], [loss, slope], rtol=1e-5)


def test_unchanged_parameters():
    # correctness 1: on the first minibatch ratio = 1, KL = 0, clip fraction = 0, and the gradient is -A.
    log_prob, _, adv, _ = batch()
    value, gradient = jax.vmap(jax.value_and_grad(losses.policy_loss), (0, 0, 0, None))(
        log_prob, log_prob, adv, 0.2
    )
    np.testing.assert_array_equal(value, -adv)
    np.testing.assert_array_equal(gradient, -adv)
    np.testing.assert_array_equal(losses.approx_kl(log_prob, log_prob), 0.0)
    np.testing.assert_array_equal(losses.clip_fraction(log_prob, log_prob, 0.2), 0.0)


@pytest.mark.parametrize("adv", [1.0, 0.0, -1.0])
def test_huge_ratio_has_finite_loss_and_gradient(adv):
    # exp(100) is inf in float32; its gradient under the clip would be 0 * inf = NaN and ruin every parameter.
    value, gradient = jax.value_and_grad(losses.policy_loss)(
        jnp.float32(0.0), jnp.float32(-100.0), jnp.float32(adv), 0.2
    )
    assert np.isfinite(value)
    assert gradient == 0.0
    assert np.isfinite(losses.approx_kl(jnp.float32(0.0), jnp.float32(-100.0)))


def test_value_loss():
    value, gradient = jax.value_and_grad(losses.value_loss)(jnp.float32(3.0), jnp.float32(1.0))
    assert (value, gradient) == (2.0, 2.0)


def test_clipped_value_loss_against_numpy():
    value, old, target, _ = batch(1)
    near = old.astype(np.float64) + np.clip(value.astype(np.float64) - old, -0.1, 0.1)
    expected = 0.5 * np.maximum((value.astype(np.float64) - target) ** 2, (near - target) ** 2)
    np.testing.assert_allclose(losses.clipped_value_loss(value, old, target, 0.1), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (1.1, 1.0, 3.0, 0.5 * 1.9**2, -1.9),  # within the range: the plain loss
        (2.0, 1.0, 3.0, 0.5 * 1.8**2, 0.0),  # already moved 0.2 towards the target: no further
        (0.0, 1.0, 3.0, 0.5 * 3.0**2, -3.0),  # moved away: full gradient back
    ],
)
def test_clipped_value_loss_by_hand(value, old, target, loss, slope):
    args = [jnp.float32(x) for x in (value, old, target)]
    result, gradient = jax.value_and_grad(losses.clipped_value_loss)(*args, 0.2)
    np.testing.assert_allclose([result, gradient], [loss, slope], rtol=1e-5)


def test_approx_kl_estimates_the_divergence():
    rng = np.random.default_rng(2)
    action = rng.normal(size=1_000_000)
    # Log-densities of normal distributions around 0 and 0.1, but for the constant that both have.
    old = (-0.5 * np.square(action)).astype(np.float32)
    new = (-0.5 * np.square(action - 0.1)).astype(np.float32)
    kl = np.asarray(losses.approx_kl(new, old))
    np.testing.assert_allclose(np.mean(kl, dtype=np.float64), 0.1**2 / 2, rtol=0.01)  # KL of two normals


def test_approx_kl_keeps_small_differences():
    # The value is about d^2 / 2; (exp(d) - 1) - d has a rounding error of 6e-8, more than the value itself.
    difference = jnp.array([1e-3, -1e-3, 1e-4], jnp.float32)
    kl = losses.approx_kl(difference, jnp.zeros(3))
    np.testing.assert_allclose(kl, np.expm1(np.float64(difference)) - np.float64(difference), atol=2e-10)


def test_clip_fraction_by_hand():
    log_prob = jnp.log(jnp.array([0.7, 0.9, 1.0, 1.1, 1.3], jnp.float32))
    np.testing.assert_array_equal(losses.clip_fraction(log_prob, jnp.zeros(5), 0.2), [1, 0, 0, 0, 1])


def test_shapes_must_agree():
    # [N, L] against [N] would broadcast in silence and train on the wrong advantages.
    with pytest.raises(AssertionError):
        losses.policy_loss(jnp.zeros((4, 4)), jnp.zeros((4, 4)), jnp.zeros(4), 0.2)
