"""Stacks of frames: a ring keeps the newest of each row and rebuilds stacks when they are sampled.

An observation of K frames has them along its last axis, the oldest first (`EnvSpec.stacked_frames`): the
newest of its own row and of the K - 1 rows before. At the start of an episode a stack either repeats its
frame or continues from the row before, the final observation of the last episode; a flag of the row says
which.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrl.experience.replay.places import wrap
from jaxrl.types import Array


def newest(obs: Array, frames: int) -> Array:
    """[..., C], the newest frame of observations [..., K * C]."""
    return obs[..., -(obs.shape[-1] // frames) :]


def begins_anew(obs: Array, reset: Array, frames: int) -> Array:
    """bool[T, B], True if a stack repeats its newest frame because an episode begins.

    Args:
      obs: [T, B, *, K * C].
      reset: bool[T, B], True if an episode begins.
      frames: K.
    """
    repeated = jnp.concatenate([newest(obs, frames)] * frames, axis=-1)
    return reset & (obs == repeated).all(axis=tuple(range(2, obs.ndim)))


def stack_frames(frame: Array, anew: Array, row: Array, env: Array, frames: int) -> Array:
    """[..., N, *, K * C], the observations of rows of a ring.

    Args:
      frame: [rows, B, *, C], the newest frame of each row.
      anew: bool[rows, B], `begins_anew` of each row.
      row: int32[..., N], beyond the end from the start again; the K - 1 rows before each are there.
      env: int32[N].
      frames: K.
    """
    env = jnp.broadcast_to(env, row.shape).astype(jnp.uint32)
    size = len(frame)
    # Rows that each looks back, at most to where its stack began.
    reach = jnp.zeros_like(row)
    begun = jnp.zeros(row.shape, bool)
    parts = []
    for back in range(frames):
        reach = jnp.where(begun, reach, back)
        at = wrap(row - reach, size), env
        parts.append(frame.at[at].get(mode="promise_in_bounds"))
        begun |= anew.at[at].get(mode="promise_in_bounds")
    return jnp.concatenate(parts[::-1], axis=-1)
