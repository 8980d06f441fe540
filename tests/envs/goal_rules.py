"""Rules of goals as a user names them in `hindsight_goals`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.envs.goals import NearGoals

ENDLESS = NearGoals(reached=0.0, terminates=False)
FAR = NearGoals(radius=1.5)
NUMBER = 3


def sparse(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    """0 at the goal, else -1."""
    return -(jnp.abs(achieved - desired)[..., 0] > 0.5).astype(jnp.float32)


def of_the_wrong_shape(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    return -jnp.abs(achieved - desired)
