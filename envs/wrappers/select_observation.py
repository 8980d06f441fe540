"""`select_observation`: hides part of the state."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxrl.envs.base import Box, JaxEnv
from jaxrl.envs.wrappers.wrapper import ObservationWrapper, check_indices, require_box


class SelectObservation(ObservationWrapper):
    """Keeps the components `indices` of a vector observation, in that order.

    Hiding velocities, as in `gymnax:CartPole-v1` with `indices=(0, 2)`, turns a control task into one
    that needs memory.
    """

    def __init__(self, env: JaxEnv, indices: Sequence[int]):
        space = require_box("select_observation", env, ndim=1)
        size = space.shape[0]
        check_indices("select_observation", indices, size)
        self._indices = np.array(indices)
        low, high = (tuple(bound[i] for i in indices) for bound in (space.low, space.high))
        super().__init__(env, Box(low, high, (len(indices),), space.dtype))

    def observe(self, obs: jax.Array) -> jax.Array:
        return obs[self._indices]
