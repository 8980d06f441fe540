"""Random words for environments that need many of them in every step, and numbers made of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def random_words(key: jax.Array, n: int) -> jax.Array:
    """uint32[n], random: an integer hash of the key and of the index of each word.

    A word takes a tenth of the time of one of `jax.random.bits`. The key must be used for nothing else. The
    hash is the "lowbias32" of C. Wellons' hash-prospector: every bit of its input changes every bit of its
    output with a chance of about one half.
    """
    first, second = jax.random.key_data(key)[:2]
    x = _mix(first + np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9))
    return _mix(x ^ second)


def hashed(word: jax.Array, n: int) -> jax.Array:
    """uint32[n], random: an integer hash of one random word, uint32[], and of the index of each."""
    return _mix(word + np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9))


def _mix(x: jax.Array) -> jax.Array:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


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
