"""Advantages, discounted returns and how much of them the value function explains.

Time index: row t of `reward_TB`, `terminated_TB` and `truncated_TB` is what the step from observation t
returned (r_{t+1} in Sutton and Barto); row t of `value_TB` is V(obs_t, carry_t), before that step.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Array, Axis


def gae(
    reward_TB: Array,
    value_TB: Array,
    last_value_B: Array,
    terminated_TB: Array,
    truncated_TB: Array,
    bootstrap_value_TB: Array,
    gamma: Array | float,
    gae_lambda: Array | float,
    unroll: int = 1,
) -> tuple[Array, Array]:
    """Generalized advantage estimation (Schulman et al. 2016, eq. 11-16).

        delta_t = r_t + gamma * v'_t - v_t
        A_t     = delta_t + gamma * lambda * (1 - done_t) * A_{t+1},    A_T = 0

    where the value of the successor, v'_t, is 0 where the episode terminated, V(final observation) where
    it was truncated (Pardo et al. 2018: a time limit is no terminal state), v_{t+1} elsewhere and V of the
    observation after the rollout at t = T-1. Where both flags are set, termination wins. Either flag ends
    the sum: row t+1 belongs to another episode. So rows between an episode's end and the next one's start
    (dummy rows of NEXT_STEP autoreset) never reach a valid row and need no mask here.

    Args:
      reward_TB, value_TB: float32[T, B].
      last_value_B: float32[B], V of the observation that follows row T-1.
      terminated_TB, truncated_TB: bool[T, B].
      bootstrap_value_TB: float32[T, B], V(final observation of the episode, carry after step t); read only
        where truncated and not terminated.
      gamma: discount, scalar.
      gae_lambda: scalar; 0 is the one-step advantage, 1 is return minus value.
      unroll: steps in each turn of the loop over time; the values are the same.

    Returns:
      The advantages and the value targets A_t + v_t, both float32[T, B].
    """
    chex.assert_rank([reward_TB, last_value_B, gamma, gae_lambda], [2, 1, 0, 0])
    chex.assert_equal_shape([reward_TB, value_TB, terminated_TB, truncated_TB, bootstrap_value_TB])
    chex.assert_shape(last_value_B, reward_TB.shape[1:])
    chex.assert_type([reward_TB, value_TB, last_value_B, bootstrap_value_TB], jnp.float32)
    chex.assert_type([terminated_TB, truncated_TB], bool)

    following_TB = jnp.concatenate([value_TB[1:], last_value_B[None]])
    successor_TB = jnp.where(truncated_TB, bootstrap_value_TB, following_TB)
    successor_TB = jnp.where(terminated_TB, 0.0, successor_TB)
    delta_TB = reward_TB + gamma * successor_TB - value_TB
    decay_TB = jnp.where(terminated_TB | truncated_TB, 0.0, jnp.float32(gamma * gae_lambda))

    def step(advantage_B: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_B, decay_B = row
        # Not the product alone: 0 * NaN would carry a row that does not count over the end of an episode.
        advantage_B = delta_B + jnp.where(decay_B > 0, decay_B * advantage_B, 0.0)
        return advantage_B, advantage_B

    rows = (delta_TB, decay_TB)
    _, advantage_TB = jax.lax.scan(step, jnp.zeros_like(last_value_B), rows, reverse=True, unroll=unroll)
    return advantage_TB, advantage_TB + value_TB


def discounted_returns(
    reward_TB: Array, done_TB: Array, initial_B: Array, gamma: Array | float, unroll: int = 1
) -> tuple[Array, Array]:
    """The running discounted sum of past rewards, whose spread scales rewards (Engstrom et al. 2020).

        R_t = gamma * R_{t-1} + r_t, with R set to 0 after a row where the episode ended

    Args:
      reward_TB: float32[T, B].
      done_TB: bool[T, B], the episode ended with row t.
      initial_B: float32[B], the sum carried over from the rollout before (0 at the very start).
      gamma: discount, scalar.
      unroll: steps in each turn of the loop over time; the values are the same.

    Returns:
      R float32[T, B], including each episode's last reward; and float32[B] to carry into the next rollout,
      0 where the episode ended with row T-1.
    """
    chex.assert_rank([reward_TB, initial_B, gamma], [2, 1, 0])
    chex.assert_equal_shape([reward_TB, done_TB])
    chex.assert_shape(initial_B, reward_TB.shape[1:])
    chex.assert_type([reward_TB, initial_B], jnp.float32)
    chex.assert_type(done_TB, bool)

    def step(carry_B: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_B, done_B = row
        return_B = (gamma * carry_B + reward_B).astype(jnp.float32)
        return jnp.where(done_B, 0.0, return_B), return_B

    final_B, return_TB = jax.lax.scan(step, initial_B, (reward_TB, done_TB), unroll=unroll)
    return return_TB, final_B


def explained_variance(target_variance: Array, residual_variance: Array) -> Array:
    """float32[], 1 - Var[target - value] / Var[target], from variances float32[] over the global batch.

    1 is a perfect value function, 0 no better than a constant, below 0 worse than that. 0 where the targets
    do not vary.
    """
    chex.assert_rank([target_variance, residual_variance], 0)
    varies = target_variance > 0
    return jnp.where(varies, 1.0 - residual_variance / jnp.where(varies, target_variance, 1.0), 0.0)


def global_moments(
    axis: Axis, arrays: tuple[Array, ...], valid_TB: Array | None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Means and variances of arrays [T, B] over the valid steps of ALL devices, in two passes."""
    valid_TB = jnp.ones(arrays[0].shape, bool) if valid_TB is None else valid_TB

    def total(x_TB: Array) -> Array:
        return jnp.where(valid_TB, x_TB, 0.0).sum()

    count, sums = axis.psum((valid_TB.sum(dtype=jnp.float32), [total(x) for x in arrays]))
    count = jnp.maximum(count, 1.0)
    means = [x / count for x in sums]
    squares = [total(jnp.square(x - mean)) for x, mean in zip(arrays, means, strict=True)]
    return tuple(means), tuple(x / count for x in axis.psum(squares))


def standardize(x_TB: Array, mean: Array, variance: Array) -> Array:
    """float32[T, B] of mean 0 and standard deviation 1."""
    return (x_TB - mean) / (jnp.sqrt(variance) + 1e-8)
