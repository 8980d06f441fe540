"""Cards that are dealt one by one, and random integers.

A shuffled deck whose cards are seen one after the other, and nothing else of it, is sampling without
replacement: the state is how many cards of each kind are left, whatever the number of decks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.envs.names import check_positive
from jaxrl.envs.native.random_words import hashed

CARDS_PER_DECK = 52
# Kinds by what is looked at: black and red; spade, diamond, club, heart; ace, 2 ... queen, king.
KINDS = {"colors": 2, "suits": 4, "ranks": 13}
_MOST_DECKS = 1000


def check_decks(label: str, num_decks: object) -> int:
    """Returns the cards of so many decks; `label` names the number in the ValueError if it is none."""
    return CARDS_PER_DECK * check_positive(label, num_decks, _MOST_DECKS)


def uniform(words: jax.Array) -> jax.Array:
    """float32[...] in [0, 1), multiples of 2^-24, from random words uint32[...]."""
    return (words >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def below(word: jax.Array, n: jax.Array | int) -> jax.Array:
    """int32[], even in [0, n) for n from 1 to 2^16 or so, from one random word; 0 for a smaller n."""
    number = (uniform(word) * n).astype(jnp.int32)
    return jnp.clip(number, 0, jnp.maximum(jnp.asarray(n, jnp.int32) - 1, 0))


def choose(word: jax.Array, allowed: jax.Array) -> jax.Array:
    """int32[]: one of the indices at which bool[n] is True, evenly; anyone if there is none.

    The largest of random numbers: a sum up to each index takes XLA several times as long on CPU.
    """
    n = allowed.shape[0]
    scores = jnp.where(allowed, (hashed(word, n) >> 1) + 1, 0)
    return jnp.where(scores == scores.max(), jnp.arange(n, dtype=jnp.int32), 0).max()


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
