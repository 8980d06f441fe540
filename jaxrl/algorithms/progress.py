"""Numbers that fall over a part of the run, such as exploration."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.types import Array, LearnerState


def run_progress(learner: LearnerState, fraction: Array, total: int) -> Array:
    """float32[]: 0 at the start of the run, 1 after a fraction of it.

    Args:
      learner: of which the updates made count, or the share of a budget in seconds that is used up.
      fraction: float32[], of the run.
      total: planned gradient steps of the run.
    """
    if learner.elapsed is not None:
        # A fraction of 0 is over at once.
        return jnp.minimum(learner.elapsed / jnp.maximum(fraction, 1e-9), 1.0)
    planned = jnp.maximum(fraction * float(total), 1.0)
    return jnp.minimum(learner.updates.astype(jnp.float32) / planned, 1.0)
