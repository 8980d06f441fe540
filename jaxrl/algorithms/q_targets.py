"""Targets and loss of Q-learning; pure functions of arrays."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.algorithms.q_values import value_of
from jaxrl.types import Array


def next_value(target_q: Array, online_q: Array | None) -> Array:
    """float32[...], the value of what follows, by the target network.

    Args:
      target_q: float32[..., A], Q-values of the target network.
      online_q: float32[..., A], of the network, which chooses the action (van Hasselt et al. 2016); None: the
        target network does (Mnih et al. 2015).
    """
    chooser = target_q if online_q is None else online_q
    return value_of(target_q, jnp.argmax(chooser, axis=-1))


def n_step_target(total: Array, discount: Array, terminated: Array, value: Array) -> Array:
    """float32[...], sum_k gamma^k r_k + gamma^m V(s_m) after m steps; without V after a termination.

    Args:
      total, discount: float32[...], of `n_step_return`.
      terminated: bool[...], True if the m-th step ended the episode.
      value: float32[...], V(s_m).
    """
    return total + jnp.where(terminated, 0.0, discount * value)


def polyak_update(target: Array, params: Array, rate: Array) -> Array:
    """The target network's parameters after a move to the network's; exactly these at rate 1."""
    return rate * params + (1.0 - rate) * target
