"""CountRecall: say how often cards of a kind were seen."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_arguments, check_choice, format_call
from jaxrl.envs.native.memory.cards import KINDS, check_decks, deal, full_deck, graded
from jaxrl.envs.native.random_words import random_words


@flax.struct.dataclass
class CountRecallState:
    """Two decks.

    Attributes:
      values: int32[K], the cards of each kind that are left to be seen.
      queries: int32[K], the same of those that are left to be asked for.
      query: int32[], the kind that is asked for.
    """

    values: jax.Array
    queries: jax.Array
    query: jax.Array


class CountRecall(JaxEnv):
    """Each step shows a card and asks how many of some kind were seen so far, that card included.

    Observation MultiDiscrete[K, K]: the kind of the card and the kind that is asked for, each from a deck of
    its own. Action Discrete(n / K + 1), the number. With n cards an episode has n - 1 steps of reward
    1 / (n - 1) or -1 / (n - 1), and terminates at the last card. The best return is 1.

    Args:
      num_decks: of 52 cards.
      deck_type: the kinds: "colors" (2), "suits" (4) or "ranks" (13).
    """

    def __init__(self, num_decks: int = 1, deck_type: str = "colors"):
        given = dict(locals())
        label = "jaxrl:memory/CountRecall"
        self._cards = check_decks(f"{label}: num_decks", num_decks)
        self._kinds = KINDS[check_choice(f"{label}: deck_type", deck_type, tuple(KINDS))]
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(CountRecall, given)),
            observation_space=MultiDiscrete((self._kinds,) * 2),
            action_space=Discrete(self._cards // self._kinds + 1),
            max_episode_steps=self._cards - 1,
        )

    def reset(self, key: jax.Array) -> tuple[CountRecallState, jax.Array]:
        full = full_deck(self._kinds, self._cards)
        return self._deal(key, full, full)

    def step(self, key: jax.Array, state: CountRecallState, action: jax.Array) -> tuple[Any, TimeStep]:
        seen = self._cards // self._kinds - state.values[state.query]
        reward = graded(action == seen, 1 / (self._cards - 1))
        state, obs = self._deal(key, state.values, state.queries)
        return state, TimeStep(
            obs=obs, reward=reward, terminated=state.values.sum() == 0, truncated=jnp.zeros((), bool)
        )

    def _deal(
        self, key: jax.Array, values: jax.Array, queries: jax.Array
    ) -> tuple[CountRecallState, jax.Array]:
        words = random_words(key, 2)
        (value, values) = deal(words[0], values)
        (query, queries) = deal(words[1], queries)
        return CountRecallState(values, queries, query), jnp.stack([value, query])
