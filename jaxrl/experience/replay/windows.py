"""Windows of consecutive rows: which of their steps belong to an n-step return."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array


def follows(terminated: Array, reset_after: Array) -> Array:
    """True if the row after a step is its successor, or if none is needed.

    Where an environment was started again by force, the row after is the first of another episode, and the
    observation after the step is lost.

    Args:
      terminated: bool[...], of the steps.
      reset_after: bool[...], `reset` of the rows after them.
    """
    return terminated | ~reset_after


def counted_steps(terminated: Array, reset: Array, valid: Array) -> Array:
    """The steps that belong to n-step returns from the first row of each window.

    A window ends after a termination; after a truncation, whose final observation is the next row and not
    `valid`; and before a step without a successor.

    Args:
      terminated, reset, valid: bool[K + 1, N], of consecutive rows.

    Returns:
      bool[K, N], True on the first m steps; row m is what follows them.
    """
    known = valid[:-1] & follows(terminated[:-1], reset[1:])
    goes_on = jnp.concatenate([jnp.ones_like(known[:1]), ~terminated[:-2]])
    return jnp.cumprod((known & goes_on).astype(jnp.int32), axis=0).astype(bool)
