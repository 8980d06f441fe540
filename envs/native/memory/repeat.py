"""RepeatFirst and RepeatPrevious: say the suit of a card that was seen before."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import changed_arguments, check_whole, format_call
from jaxrl.envs.native.memory.cards import KINDS, check_decks, deal, full_deck, graded
from jaxrl.envs.native.random_words import random_words

_SUITS = KINDS["suits"]


@flax.struct.dataclass
class RepeatFirstState:
    """int32[], the suit of the first card; int32[4], the cards that are left of each suit."""

    first: jax.Array
    left: jax.Array


class RepeatFirst(JaxEnv):
    """Cards are shown one by one; every action is to be the suit of the first. The best return is 1.

    Observation Discrete(4), the suit of the card; action Discrete(4). With n cards an episode has n - 1 steps
    of reward 1 / (n - 1) or -1 / (n - 1), and terminates at the last card.

    Args:
      num_decks: of 52 cards.
    """

    def __init__(self, num_decks: int = 1):
        given = dict(locals())
        label = "jaxrl:memory/RepeatFirst"
        self._cards = check_decks(f"{label}: num_decks", num_decks)
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(RepeatFirst, given)),
            observation_space=Discrete(_SUITS),
            action_space=Discrete(_SUITS),
            max_episode_steps=self._cards - 1,
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[RepeatFirstState, jax.Array]:
        suit, left = deal(random_words(key, 1)[0], full_deck(_SUITS, self._cards))
        return RepeatFirstState(suit, left), suit

    def step(self, key: jax.Array, state: RepeatFirstState, action: jax.Array) -> tuple[Any, TimeStep]:
        suit, left = deal(random_words(key, 1)[0], state.left)
        reward = graded(action == state.first, 1 / (self._cards - 1))
        return RepeatFirstState(state.first, left), TimeStep(
            obs=suit, reward=reward, terminated=left.sum() == 0, truncated=jnp.zeros((), bool)
        )

    def solve(self, state: RepeatFirstState) -> jax.Array:
        """int32[]: the suit of the first card."""
        return state.first


@flax.struct.dataclass
class RepeatPreviousState:
    """The latest k cards, and those that are left.

    Attributes:
      recent: int32[k], the card that was seen at time t is at t modulo k.
      left: int32[4], the cards that are left of each suit.
      time: int32[], steps so far.
    """

    recent: jax.Array
    left: jax.Array
    time: jax.Array


class RepeatPrevious(JaxEnv):
    """Cards are shown one by one; an action is to be the suit of the card of k - 1 steps ago. The best is 1.

    Observation Discrete(4), the suit of the card; action Discrete(4). The first k - 1 actions do not count.
    Each of the others has a reward of 1 / (n - k) or -1 / (n - k) with n cards. An episode has n - 1 steps
    and terminates at the last card.

    Args:
      num_decks: of 52 cards.
      k: 1 asks for the card that is shown, 2 for the one before.
    """

    def __init__(self, num_decks: int = 1, k: int = 4):
        given = dict(locals())
        label = "jaxrl:memory/RepeatPrevious"
        self._cards = check_decks(f"{label}: num_decks", num_decks)
        self._k = check_whole(f"{label}: k", k, 1, self._cards - 1)
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(RepeatPrevious, given)),
            observation_space=Discrete(_SUITS),
            action_space=Discrete(_SUITS),
            max_episode_steps=self._cards - 1,
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[RepeatPreviousState, jax.Array]:
        suit, left = deal(random_words(key, 1)[0], full_deck(_SUITS, self._cards))
        recent = jnp.where(jnp.arange(self._k) == 0, suit, 0)
        return RepeatPreviousState(recent, left, jnp.zeros((), jnp.int32)), suit

    def step(self, key: jax.Array, state: RepeatPreviousState, action: jax.Array) -> tuple[Any, TimeStep]:
        suit, left = deal(random_words(key, 1)[0], state.left)
        time = state.time + 1
        # The place of the next card still holds the one that is asked for.
        place = time % self._k
        asked = state.recent[place]
        reward = graded(action == asked, 1 / (self._cards - self._k))
        recent = jnp.where(jnp.arange(self._k) == place, suit, state.recent)
        return RepeatPreviousState(recent, left, time), TimeStep(
            obs=suit,
            reward=jnp.where(time >= self._k, reward, 0.0),
            terminated=left.sum() == 0,
            truncated=jnp.zeros((), bool),
        )

    def solve(self, state: RepeatPreviousState) -> jax.Array:
        """int32[]: the suit that is asked for; any in the first steps, which do not count."""
        return state.recent[(state.time + 1) % self._k]
