"""MultiarmedBandit: find the best arm within an episode."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_positive
from jaxrl.envs.native.memory.card_games import graded
from jaxrl.envs.native.random_words import random_words, uniform

_MOST_ARMS = 1024


@flax.struct.dataclass
class BanditState:
    """float32[n], the chance of each arm to pay; int32[], steps so far."""

    chances: jax.Array
    time: jax.Array


class MultiarmedBandit(JaxEnv):
    """An action pulls an arm; the observation is 1 if it paid. The chances are new in each episode.

    Observation Discrete(2), 0 at the start; action Discrete(n). With T steps an arm that pays has a reward of
    1 / T, else -1 / T; chances are uniform in [0, 1). Episodes are truncated after T steps.

    Args:
      num_bandits: n.
      episode_length: T.
    """

    def __init__(self, num_bandits: int = 10, episode_length: int = 200):
        label = "jaxrl:memory/MultiarmedBandit"
        self._arms = check_positive(f"{label}: num_bandits", num_bandits, _MOST_ARMS)
        self._limit = check_positive(f"{label}: episode_length", episode_length)
        self.spec = EnvSpec(
            name=changed_call(label, MultiarmedBandit, locals()),
            observation_space=Discrete(2),
            action_space=Discrete(num_bandits),
            max_episode_steps=episode_length,
        )

    def reset(self, key: jax.Array) -> tuple[BanditState, jax.Array]:
        chances = uniform(random_words(key, self._arms))
        return BanditState(chances, jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.int32)

    def step(self, key: jax.Array, state: BanditState, action: jax.Array) -> tuple[Any, TimeStep]:
        paid = uniform(random_words(key, 1)[0]) < state.chances[action]
        time = state.time + 1
        return BanditState(state.chances, time), TimeStep(
            obs=paid.astype(jnp.int32),
            reward=graded(paid, 1 / self._limit),
            terminated=jnp.zeros((), bool),
            truncated=time >= self._limit,
        )
