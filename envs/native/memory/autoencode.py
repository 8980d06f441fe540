"""Autoencode: watch all cards, then say their suits backwards."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_arguments, format_call
from jaxrl.envs.native.memory.cards import KINDS, check_decks, deal, full_deck, graded
from jaxrl.envs.native.random_words import random_words

_SUITS = KINDS["suits"]


@flax.struct.dataclass
class AutoencodeState:
    """The cards that were shown, and those that are left.

    Attributes:
      shown: int32[n], the suits in the order in which they are shown.
      left: int32[4], the cards that are left of each suit.
      time: int32[], steps so far.
    """

    shown: jax.Array
    left: jax.Array
    time: jax.Array


class Autoencode(JaxEnv):
    """All n cards are shown, then every action is to be the suit of the latest that was not asked for yet.

    Observation MultiDiscrete[2, 4]: 1 while cards are shown and 0 from the last one on, where the first
    answer is due; and the suit of the card, 0 (spade) once there is none. Action Discrete(4). n - 1 steps
    without reward, then n answers of reward 1 / n or -1 / n, of which the last terminates the episode. The
    best return is 1.

    Args:
      num_decks: of 52 cards.
    """

    def __init__(self, num_decks: int = 1):
        given = dict(locals())
        label = "jaxrl:memory/Autoencode"
        self._cards = check_decks(f"{label}: num_decks", num_decks)
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(Autoencode, given)),
            observation_space=MultiDiscrete((2, _SUITS)),
            action_space=Discrete(_SUITS),
            max_episode_steps=2 * self._cards - 1,
        )

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
        reward = graded(action == asked, 1 / self._cards)
        shown = jnp.where(watches & (jnp.arange(self._cards) == time), suit, state.shown)
        return AutoencodeState(shown, left, time), TimeStep(
            obs=jnp.stack([(time < last).astype(jnp.int32), suit]),
            reward=jnp.where(watches, 0.0, reward),
            terminated=time > 2 * last,
            truncated=jnp.zeros((), bool),
        )
