"""`one_hot_observation`: integers as vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, JaxEnv
from jaxrl.envs.spaces import check_count
from jaxrl.envs.wrappers.wrapper import ObservationWrapper, describe, require_channels_last

_LABEL = "wrapper one_hot_observation"
_MOST_VALUES = 2**16


class OneHotObservation(ObservationWrapper):
    """Turns integers into float32 vectors of zeros and a one.

    Args:
      env: the environment. Discrete(n) becomes a vector of n components; of an array of integers each becomes
        `values` components, one after the other along the last axis: int[..., C] to float32[..., C * values].
      values: of an array, how many values there are, from 0. A larger one becomes zeros.
    """

    def __init__(self, env: JaxEnv, values: int | None = None):
        space = env.spec.observation_space
        if isinstance(space, Discrete):
            if values is not None:
                raise ValueError(f"{_LABEL}: values is for arrays; this observation is Discrete")
            self._n = space.n
            self._shape: tuple[int, ...] = (space.n,)
        elif isinstance(space, Box) and np.issubdtype(space.dtype, np.integer) and space.shape:
            if values is None:
                raise ValueError(f"{_LABEL} needs values=N for an array: how many values there are, from 0")
            require_channels_last("one_hot_observation", env)
            check_count(f"{_LABEL}: values", values, _MOST_VALUES)
            self._n = values
            self._shape = (*space.shape[:-1], space.shape[-1] * values)
        else:
            raise ValueError(
                f"{_LABEL} needs a Discrete observation or an array of integers; "
                f"{env.spec.name} has {describe(space)}"
            )
        super().__init__(env, Box.of(0.0, 1.0, self._shape))

    def observe(self, obs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(obs, self._n, dtype=jnp.float32).reshape(self._shape)
