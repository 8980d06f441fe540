"""`one_hot_observation`: integers as vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from envs.base import Box, Discrete, JaxEnv
from envs.wrappers.wrapper import ObservationWrapper, describe


class OneHotObservation(ObservationWrapper):
    """Turns a Discrete(n) observation into a float32 vector of n components."""

    def __init__(self, env: JaxEnv):
        space = env.spec.observation_space
        if not isinstance(space, Discrete):
            raise ValueError(
                "wrapper one_hot_observation needs a Discrete observation; "
                f"{env.spec.name} has {describe(space)}"
            )
        self._n = space.n
        super().__init__(env, Box.of(0.0, 1.0, (space.n,)))

    def observe(self, obs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(obs, self._n, dtype=jnp.float32)
