"""Targets and losses of soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905); functions of arrays."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array


def soft_value(q: Array, log_prob: Array, temperature: Array | float) -> Array:
    """float32[...], min_i Q_i(s, a) - alpha log pi(a | s), of an action a of the policy (eq. 3, two critics).

    Args:
      q: float32[2, ...], Q-values of both critics.
      log_prob: float32[...].
      temperature: alpha.
    """
    return q.min(axis=0) - temperature * log_prob


def policy_loss(q: Array, log_prob: Array, temperature: Array | float) -> Array:
    """float32[...], alpha log pi(a | s) - min_i Q_i(s, a) (eq. 7)."""
    return -soft_value(q, log_prob, temperature)


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: float) -> Array:
    """float32[...], -log alpha (log pi(a | s) + H), whose gradient has the sign of eq. 18's.

    The logarithm in place of alpha, as in the authors' own code: steps are relative to its size.
    """
    return -log_temperature * (log_prob + target_entropy)


def critic_loss(q: Array, target: Array, weight: Array, usable: Array) -> tuple[Array, Array]:
    """(half the squared errors of both critics, weighted; their mean absolute error), float32[...].

    Args:
      q: float32[2, ...].
      target: float32[...].
      weight: float32[...], importance weights.
      usable: bool[...]; both results are 0 elsewhere.
    """
    # Before the square: the gradient of `where` lets a NaN pass.
    error = jnp.where(usable[None], q - target[None], 0.0)
    return 0.5 * weight * jnp.square(error).sum(axis=0), jnp.abs(error).mean(axis=0)
