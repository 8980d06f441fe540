"""PPO's losses and diagnostics per element; the sum is divided by the count of the global batch.

All arguments and results are float32 arrays of one shape [...], one element per action taken, of the same
step t; `clip_range` is a scalar. `log_prob` is of the action taken and, as `value`, under the present
parameters; `old_` marks outputs of the policy that the updates on a rollout start from. It also collected the
rollout, unless that was a still older one (`PPO.prepare`).
"""

from __future__ import annotations

import chex
import jax.numpy as jnp

from jaxrl.types import Array

# exp() of more is of no use and overflows at 88, where the gradient would become 0 * inf = NaN. Ratios
# above e^20 count as e^20 and have no gradient.
_MAX_LOG_RATIO = 20.0


def policy_loss(log_prob: Array, old_log_prob: Array, advantage: Array, clip_range: Array | float) -> Array:
    """PPO's clipped surrogate, negated to be minimised (Schulman et al. 2017, eq. 7).

        -min(r A, clip(r, 1 - clip_range, 1 + clip_range) A),    r = exp(log_prob - old_log_prob)

    The gradient is zero where the ratio has already left the range in the direction the advantage favours.
    """
    _check(log_prob, old_log_prob, advantage)
    chex.assert_rank(clip_range, 0)
    ratio = jnp.exp(_log_ratio(log_prob, old_log_prob))
    clipped_ratio = jnp.clip(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return -jnp.minimum(ratio * advantage, clipped_ratio * advantage)


def value_loss(value: Array, target: Array) -> Array:
    """float32[...]: (value - target)^2 / 2."""
    _check(value, target)
    return 0.5 * jnp.square(value - target)


def clipped_value_loss(value: Array, old_value: Array, target: Array, clip_range: Array | float) -> Array:
    """The larger of two value losses: of the value, and of the value kept near the old one.

        max((v - target)^2, (v_old + clip(v - v_old, -clip_range, clip_range) - target)^2) / 2

    After Huang et al. 2022, "The 37 Implementation Details of PPO", detail 9; `clip_range` in units of value.
    """
    _check(value, old_value, target)
    chex.assert_rank(clip_range, 0)
    near_value = old_value + jnp.clip(value - old_value, -clip_range, clip_range)
    return jnp.maximum(value_loss(value, target), value_loss(near_value, target))


def approx_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Estimator of KL(old || new), unbiased and never negative (Schulman 2020, "Approximating KL", k3).

        (r - 1) - log r,    r = exp(log_prob - old_log_prob)

    Its mean over actions of the old policy estimates the divergence in nats.
    """
    _check(log_prob, old_log_prob)
    log_ratio = _log_ratio(log_prob, old_log_prob)
    # expm1, because r - 1 rounds a small log-ratio's second-order difference away.
    return jnp.expm1(log_ratio) - log_ratio


def clip_fraction(log_prob: Array, old_log_prob: Array, clip_range: Array | float) -> Array:
    """float32[...]: 1 where the ratio is out of [1 - clip_range, 1 + clip_range], else 0."""
    _check(log_prob, old_log_prob)
    chex.assert_rank(clip_range, 0)
    ratio = jnp.exp(_log_ratio(log_prob, old_log_prob))
    return (jnp.abs(ratio - 1.0) > clip_range).astype(jnp.float32)


def importance_weight(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """float32[...]: probability of the action taken over the probability with which it was taken."""
    _check(log_prob, behaviour_log_prob)
    return jnp.exp(_log_ratio(log_prob, behaviour_log_prob))


def _log_ratio(log_prob: Array, old_log_prob: Array) -> Array:
    return jnp.minimum(log_prob - old_log_prob, _MAX_LOG_RATIO)


def _check(*arrays: Array) -> None:
    chex.assert_equal_shape(arrays)
    chex.assert_type(arrays, jnp.float32)
