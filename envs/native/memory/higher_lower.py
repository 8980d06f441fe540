"""HigherLower: guess if the next card is higher or lower."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import changed_arguments, format_call
from jaxrl.envs.native.memory.cards import KINDS, check_decks, deal, full_deck
from jaxrl.envs.native.random_words import random_words

_RANKS = KINDS["ranks"]


@flax.struct.dataclass
class HigherLowerState:
    """int32[], the rank of the card that is shown; int32[13], the cards that are left of each rank."""

    rank: jax.Array
    left: jax.Array


class HigherLower(JaxEnv):
    """Action 0 says that the next card is higher than the one that is shown, 1 that it is lower.

    Observation Discrete(13), the rank, aces lowest; action Discrete(2). With n cards an episode has n - 1
    steps of reward 1 / n, -1 / n, or 0 where both cards have the same rank, and terminates at the last card.
    Counting cards helps.

    Args:
      num_decks: of 52 cards.
    """

    def __init__(self, num_decks: int = 1):
        given = dict(locals())
        label = "jaxrl:memory/HigherLower"
        self._cards = check_decks(f"{label}: num_decks", num_decks)
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(HigherLower, given)),
            observation_space=Discrete(_RANKS),
            action_space=Discrete(2),
            max_episode_steps=self._cards - 1,
        )

    def reset(self, key: jax.Array) -> tuple[HigherLowerState, jax.Array]:
        rank, left = deal(random_words(key, 1)[0], full_deck(_RANKS, self._cards))
        return HigherLowerState(rank, left), rank

    def step(self, key: jax.Array, state: HigherLowerState, action: jax.Array) -> tuple[Any, TimeStep]:
        rank, left = deal(random_words(key, 1)[0], state.left)
        guessed = jnp.where(action == 0, 1, -1)
        reward = (guessed * jnp.sign(rank - state.rank)).astype(jnp.float32) / self._cards
        return HigherLowerState(rank, left), TimeStep(
            obs=rank, reward=reward, terminated=left.sum() == 0, truncated=jnp.zeros((), bool)
        )
