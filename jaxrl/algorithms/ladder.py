"""Exploration by a ladder: each environment has an epsilon of its own."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxrl.algorithms.q_values import QAgent
from jaxrl.types import Array

_BASE = 0.4
_SPREAD = 7.0


def ladder(index: Array | int, num_envs: int) -> Array:
    """float32, 0.4^(1 + 7 i / (N - 1)), the epsilon of environment i of N (Horgan et al. 2018).

    Args:
      index: int32, over all devices.
      num_envs: N.
    """
    share = jnp.asarray(index).astype(jnp.float32) / max(num_envs - 1, 1)
    epsilon: Array = _BASE ** (1.0 + _SPREAD * share)
    return epsilon


@dataclass(frozen=True)
class LadderQAgent(QAgent):
    """Explores in each environment by the ladder's epsilon, times that of the algorithm, which is 1.

    Attributes:
      num_envs: environments over all devices.
    """

    num_envs: int = 1

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> Array:
        noise = super().draw_noise(key, shape, index)
        # `choose` compares with one number for all environments.
        return noise.at[..., 0].divide(ladder(index, self.num_envs))
