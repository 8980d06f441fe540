"""`flatten_observation`: arrays as vectors."""

from __future__ import annotations

import dataclasses
import math

import jax

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.wrappers.wrapper import ObservationWrapper, require_box


class FlattenObservation(ObservationWrapper):
    """Reshapes a Box observation to one dimension, in C order; the dtype stays."""

    def __init__(self, env: JaxEnv):
        space = require_box("flatten_observation", env)
        super().__init__(env, dataclasses.replace(space, shape=(math.prod(space.shape),)))

    def observe(self, obs: jax.Array) -> jax.Array:
        return obs.reshape(-1)
