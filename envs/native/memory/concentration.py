"""Concentration: find pairs among cards that lie face down."""

from __future__ import annotations

import math
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_call, check_choice
from jaxrl.envs.native.memory.cards import KINDS, check_decks, deal, full_deck
from jaxrl.envs.native.random_words import random_words

_UNSEEN = -1
_NONE = -1


@flax.struct.dataclass
class ConcentrationState:
    """The table; a card is sampled when it is turned for the first time.

    Attributes:
      kinds: int32[n], of each card, -1 if it was never turned.
      left: int32[K], the unturned cards of each kind.
      up: bool[n], the cards that stay face up.
      first: int32[], the place of the first card of a pair, -1 where the next card is the first.
      time: int32[], steps so far.
    """

    kinds: jax.Array
    left: jax.Array
    up: jax.Array
    first: jax.Array
    time: jax.Array


class Concentration(JaxEnv):
    """An action turns a card. Two cards of one kind stay face up, others are hidden again.

    Observation MultiDiscrete[(K + 1) * n]: the kind of each of the n cards, K where it is face down; action
    Discrete(n). A pair has a reward of 2 / n. With T the limit of steps, two cards that are no pair (or the
    same card twice) have -2 / T, and a card that was face up already -1 / T for each card that is turned back
    by it. The episode terminates when all cards are face up, and is truncated after T = 2 n steps.

    Args:
      num_decks: of 52 cards.
      deck_type: the kinds that make pairs: "colors" (2) or "ranks" (13).
    """

    def __init__(self, num_decks: int = 1, deck_type: str = "ranks"):
        label = "jaxrl:memory/Concentration"
        self._cards = n = check_decks(f"{label}: num_decks", num_decks)
        self._kinds = KINDS[check_choice(f"{label}: deck_type", deck_type, ("colors", "ranks"))]
        self._limit = math.ceil(2 * n - n / (2 * n - 1))
        self.spec = EnvSpec(
            name=changed_call(label, Concentration, locals()),
            observation_space=MultiDiscrete((self._kinds + 1,) * n),
            action_space=Discrete(n),
            max_episode_steps=self._limit,
        )

    def reset(self, key: jax.Array) -> tuple[ConcentrationState, jax.Array]:
        state = ConcentrationState(
            kinds=jnp.full(self._cards, _UNSEEN, jnp.int32),
            left=full_deck(self._kinds, self._cards),
            up=jnp.zeros(self._cards, bool),
            first=jnp.asarray(_NONE, jnp.int32),
            time=jnp.zeros((), jnp.int32),
        )
        return state, jnp.full(self._cards, self._kinds, jnp.int32)

    def step(self, key: jax.Array, state: ConcentrationState, action: jax.Array) -> tuple[Any, TimeStep]:
        places = jnp.arange(self._cards)
        turned = places == action
        first = places == state.first
        drawn, left = deal(random_words(key, 1)[0], state.left)
        known = state.kinds[action]
        kind = jnp.where(known == _UNSEEN, drawn, known)
        kinds = jnp.where(turned, kind, state.kinds)
        second = state.first != _NONE
        was_up = state.up[action]
        alike = (kind == kinds[state.first]) & (action != state.first)
        pair = second & alike & ~was_up
        miss = jnp.where(was_up, 1 + second, jnp.where(second & ~pair, 2, 0))
        up = state.up | (pair & (turned | first))
        state = ConcentrationState(
            kinds=kinds,
            left=jnp.where(known == _UNSEEN, left, state.left),
            up=up,
            first=jnp.where(was_up | second, _NONE, action.astype(jnp.int32)),
            time=state.time + 1,
        )
        return state, TimeStep(
            obs=jnp.where(up | turned | first, kinds, self._kinds),
            reward=(jnp.where(pair, 2 / self._cards, 0.0) - miss / self._limit).astype(jnp.float32),
            terminated=up.all(),
            truncated=state.time >= self._limit,
        )
