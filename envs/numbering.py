"""Integers in the environment's own numbers, and counted from 0.

An environment may number its choices from another `start` than 0. Policies, collectors and wrappers count
observations and actions from 0. Data, `jaxrl.load().act`, servers and exported files have the environment's
own numbers: `own_numbers` and `counted_from_zero` are the way between both.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.spaces import Box, Dict, Discrete, Mixed, MultiDiscrete, Space


def is_renumbered(space: Space) -> bool:
    """True if an integer of the space has another number in the environment than in policies."""
    if isinstance(space, Dict | Mixed):
        return any(is_renumbered(part) for _, part in space.spaces)
    return isinstance(space, Discrete | MultiDiscrete) and bool(space.start)


def own_numbers(space: Space, x: Any) -> Any:
    """Elements [..., *shape], counted from 0, in the environment's own numbers; of JAX or numpy."""
    return _renumbered(space, x, 1)


def counted_from_zero(space: Space, x: Any) -> Any:
    """Inverse of `own_numbers`; whole numbers of any dtype become the space's."""
    return _renumbered(space, x, -1)


def starts_of(space: Space) -> tuple[int, ...]:
    """The environment's first number of each component of integers; () if all are 0."""
    if not isinstance(space, Discrete | MultiDiscrete) or not space.start:
        return ()
    return tuple(int(x) for x in np.ravel(space.start))


def _renumbered(space: Space, x: Any, sign: int) -> Any:
    if not is_renumbered(space):
        return x
    if isinstance(space, Dict):
        return {name: _renumbered(part, x[name], sign) for name, part in space.spaces}
    shift = sign * _starts(space)
    if isinstance(x, jax.Array):
        return x + jax.lax.broadcast_to_rank(jnp.asarray(shift, x.dtype), x.ndim)
    return (np.asarray(x) + shift).astype(space.dtype)


def _starts(space: Discrete | MultiDiscrete | Box | Mixed) -> np.ndarray:
    """int64, the first number of each component."""
    if isinstance(space, Mixed):
        return np.concatenate([np.ravel(_starts(part)) for _, part in space.spaces])
    if isinstance(space, Box) or not space.start:
        return np.zeros(space.shape, np.int64)
    return np.array(space.start, np.int64)
