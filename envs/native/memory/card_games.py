"""RepeatFirst, RepeatPrevious, Autoencode, HigherLower and CountRecall: cards that are seen one by one.

A shuffled deck whose cards are seen one after the other, and nothing else of it, is sampling without
replacement: the state is how many cards of each kind are left, whatever the number of decks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, Space, TimeStep
from jaxrl.envs.names import changed_call, check_choice, check_positive, check_whole
from jaxrl.envs.native.random_words import below, random_words

_CARDS_PER_DECK = 52
_MOST_DECKS = 1000
# Kinds by what is looked at: black and red; spade, diamond, club, heart; ace, 2 ... queen, king.
KINDS = {"colors": 2, "suits": 4, "ranks": 13}
_SUITS = KINDS["suits"]
_RANKS = KINDS["ranks"]


def check_decks(label: str, num_decks: object) -> int:
    """Returns the cards of so many decks; `label` names the number in the ValueError if it is none."""
    return _CARDS_PER_DECK * check_positive(label, num_decks, _MOST_DECKS)


def full_deck(kinds: int, cards: int) -> jax.Array:
    """int32[kinds]: how many cards of each kind there are among all the cards."""
    return jnp.full(kinds, cards // kinds, jnp.int32)


def deal(word: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(int32[], the kind of the next card; int32[kinds], what is left then), by one random word.

    `left`, int32[kinds], are the cards that are left of each kind; at least one of any.
    """
    last = jnp.cumsum(left)
    kind = (last <= below(word, last[-1])).sum(dtype=jnp.int32)
    return kind, left - (jnp.arange(left.shape[0]) == kind)


def graded(right: jax.Array, reward: float) -> jax.Array:
    """float32[...]: the reward where bool[...] is True, and as much with the other sign elsewhere."""
    return jnp.where(right, jnp.float32(reward), jnp.float32(-reward))


class _CardGame(JaxEnv):
    """n cards, seen one by one: n - 1 steps; the last is terminal."""

    def __init__(self, num_decks: int):
        self._label = f"jaxrl:memory/{type(self).__name__}"
        self._cards = check_decks(f"{self._label}: num_decks", num_decks)

    def _declare(self, given: Mapping[str, Any], observation: Space, actions: int, steps: int) -> None:
        self.spec = EnvSpec(
            name=changed_call(self._label, type(self), given),
            observation_space=observation,
            action_space=Discrete(actions),
            max_episode_steps=steps,
            has_solver=hasattr(self, "solve"),
        )


def _step(obs: jax.Array, reward: jax.Array, terminated: jax.Array) -> TimeStep:
    return TimeStep(obs, reward, terminated, truncated=jnp.zeros((), bool))


@flax.struct.dataclass
class RepeatFirstState:
    """int32[], the suit of the first card; int32[4], the cards that are left of each suit."""

    first: jax.Array
    left: jax.Array


class RepeatFirst(_CardGame):
    """Cards are shown one by one; every action is to be the suit of the first. The best return is 1.

    Observation Discrete(4), the suit of the card; action Discrete(4). With n cards an episode has n - 1 steps
    of reward 1 / (n - 1) or -1 / (n - 1), and terminates at the last card. A deck has 52 cards.
    """

    def __init__(self, num_decks: int = 1):
        super().__init__(num_decks)
        self._declare(locals(), Discrete(_SUITS), _SUITS, self._cards - 1)

    def reset(self, key: jax.Array) -> tuple[RepeatFirstState, jax.Array]:
        suit, left = deal(random_words(key, 1)[0], full_deck(_SUITS, self._cards))
        return RepeatFirstState(suit, left), suit

    def step(self, key: jax.Array, state: RepeatFirstState, action: jax.Array) -> tuple[Any, TimeStep]:
        suit, left = deal(random_words(key, 1)[0], state.left)
        reward = graded(action == state.first, 1 / (self._cards - 1))
        return RepeatFirstState(state.first, left), _step(suit, reward, left.sum() == 0)

    def solve(self, state: RepeatFirstState) -> jax.Array:
        return state.first


@flax.struct.dataclass
class RepeatPreviousState:
    """The latest k cards, and the remaining ones."""

    recent: jax.Array  # int32[k], the card that was seen at time t is at t modulo k
    left: jax.Array  # int32[4], the cards that are left of each suit
    time: jax.Array  # int32[], steps so far


class RepeatPrevious(_CardGame):
    """Cards are shown one by one; an action is to be the suit of the card of k - 1 steps ago. The best is 1.

    Observation Discrete(4), the suit of the card; action Discrete(4). The first k - 1 actions do not count.
    Each of the others has a reward of 1 / (n - k) or -1 / (n - k) with n cards. An episode has n - 1 steps
    and terminates at the last card.

    Args:
      num_decks: of 52 cards.
      k: 1 asks for the card that is shown, 2 for the one before.
    """

    def __init__(self, num_decks: int = 1, k: int = 4):
        super().__init__(num_decks)
        self._k = check_whole(f"{self._label}: k", k, 1, self._cards - 1)
        self._declare(locals(), Discrete(_SUITS), _SUITS, self._cards - 1)

    def reset(self, key: jax.Array) -> tuple[RepeatPreviousState, jax.Array]:
        suit, left = deal(random_words(key, 1)[0], full_deck(_SUITS, self._cards))
        recent = jnp.where(jnp.arange(self._k) == 0, suit, 0)
        return RepeatPreviousState(recent, left, jnp.zeros((), jnp.int32)), suit

    def step(self, key: jax.Array, state: RepeatPreviousState, action: jax.Array) -> tuple[Any, TimeStep]:
        suit, left = deal(random_words(key, 1)[0], state.left)
        time = state.time + 1
        # The place of the next card still holds the queried card.
        place = time % self._k
        asked = state.recent[place]
        reward = jnp.where(time >= self._k, graded(action == asked, 1 / (self._cards - self._k)), 0.0)
        recent = jnp.where(jnp.arange(self._k) == place, suit, state.recent)
        return RepeatPreviousState(recent, left, time), _step(suit, reward, left.sum() == 0)

    def solve(self, state: RepeatPreviousState) -> jax.Array:
        """int32[]: the correct suit; any in the first steps, which do not count."""
        return state.recent[(state.time + 1) % self._k]


@flax.struct.dataclass
class AutoencodeState:
    """The cards that were shown, and the remaining ones."""

    shown: jax.Array  # int32[n], the suits in the order in which they are shown
    left: jax.Array  # int32[4], the cards that are left of each suit
    time: jax.Array  # int32[], steps so far


class Autoencode(_CardGame):
    """All n cards are shown, then each action must be the suit of the latest card not recalled yet.

    Observation MultiDiscrete[2, 4]: 1 while cards are shown and 0 from the last one on, where the first
    answer is due; and the suit of the card, 0 (spade) once there is none. Action Discrete(4). n - 1 steps
    without reward, then n answers of reward 1 / n or -1 / n; the last one terminates the episode. The
    best return is 1. A deck has 52 cards.
    """

    def __init__(self, num_decks: int = 1):
        super().__init__(num_decks)
        self._declare(locals(), MultiDiscrete((2, _SUITS)), _SUITS, 2 * self._cards - 1)

    def reset(self, key: jax.Array) -> tuple[AutoencodeState, jax.Array]:
        suit, left = deal(random_words(key, 1)[0], full_deck(_SUITS, self._cards))
        shown = jnp.where(jnp.arange(self._cards) == 0, suit, 0)
        obs = jnp.stack([jnp.ones((), jnp.int32), suit])
        return AutoencodeState(shown, left, jnp.zeros((), jnp.int32)), obs

    def step(self, key: jax.Array, state: AutoencodeState, action: jax.Array) -> tuple[Any, TimeStep]:
        last = self._cards - 1
        time = state.time + 1
        watches = state.time < last
        suit, left = deal(random_words(key, 1)[0], state.left)
        suit = jnp.where(watches, suit, 0)
        left = jnp.where(watches, left, state.left)
        asked = state.shown[jnp.clip(2 * last - state.time, 0, last)]
        reward = jnp.where(watches, 0.0, graded(action == asked, 1 / self._cards))
        shown = jnp.where(watches & (jnp.arange(self._cards) == time), suit, state.shown)
        obs = jnp.stack([(time < last).astype(jnp.int32), suit])
        return AutoencodeState(shown, left, time), _step(obs, reward, time > 2 * last)


@flax.struct.dataclass
class HigherLowerState:
    """int32[], the rank of the card that is shown; int32[13], the cards that are left of each rank."""

    rank: jax.Array
    left: jax.Array


class HigherLower(_CardGame):
    """Action 0 predicts that the next card is higher than the current one, 1 that it is lower.

    Observation Discrete(13), the rank, aces lowest; action Discrete(2). With n cards an episode has n - 1
    steps of reward 1 / n, -1 / n, or 0 if both cards have the same rank, and terminates at the last card.
    Counting cards helps. A deck has 52.
    """

    def __init__(self, num_decks: int = 1):
        super().__init__(num_decks)
        self._declare(locals(), Discrete(_RANKS), 2, self._cards - 1)

    def reset(self, key: jax.Array) -> tuple[HigherLowerState, jax.Array]:
        rank, left = deal(random_words(key, 1)[0], full_deck(_RANKS, self._cards))
        return HigherLowerState(rank, left), rank

    def step(self, key: jax.Array, state: HigherLowerState, action: jax.Array) -> tuple[Any, TimeStep]:
        rank, left = deal(random_words(key, 1)[0], state.left)
        guessed = jnp.where(action == 0, 1, -1)
        reward = (guessed * jnp.sign(rank - state.rank)).astype(jnp.float32) / self._cards
        return HigherLowerState(rank, left), _step(rank, reward, left.sum() == 0)


@flax.struct.dataclass
class CountRecallState:
    """Two decks."""

    values: jax.Array  # int32[K], the cards of each kind that are left to be seen
    queries: jax.Array  # int32[K], the same for the remaining queries
    query: jax.Array  # int32[], the queried kind


class CountRecall(_CardGame):
    """Each step shows a card and asks how many of some kind were seen so far, that card included.

    Observation MultiDiscrete[K, K]: the kind of the card and the queried kind, each from a deck of
    its own. Action Discrete(n / K + 1), the number. With n cards an episode has n - 1 steps of reward
    1 / (n - 1) or -1 / (n - 1), and terminates at the last card. The best return is 1.

    Args:
      num_decks: of 52 cards.
      deck_type: the kinds: "colors" (2), "suits" (4) or "ranks" (13).
    """

    def __init__(self, num_decks: int = 1, deck_type: str = "colors"):
        super().__init__(num_decks)
        self._kinds = KINDS[check_choice(f"{self._label}: deck_type", deck_type, tuple(KINDS))]
        actions = self._cards // self._kinds + 1
        self._declare(locals(), MultiDiscrete((self._kinds,) * 2), actions, self._cards - 1)

    def reset(self, key: jax.Array) -> tuple[CountRecallState, jax.Array]:
        full = full_deck(self._kinds, self._cards)
        return self._deal(key, full, full)

    def step(self, key: jax.Array, state: CountRecallState, action: jax.Array) -> tuple[Any, TimeStep]:
        seen = self._cards // self._kinds - state.values[state.query]
        reward = graded(action == seen, 1 / (self._cards - 1))
        state, obs = self._deal(key, state.values, state.queries)
        return state, _step(obs, reward, state.values.sum() == 0)

    def _deal(
        self, key: jax.Array, values: jax.Array, queries: jax.Array
    ) -> tuple[CountRecallState, jax.Array]:
        words = random_words(key, 2)
        (value, values) = deal(words[0], values)
        (query, queries) = deal(words[1], queries)
        return CountRecallState(values, queries, query), jnp.stack([value, query])
