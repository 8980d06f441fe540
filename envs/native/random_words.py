"""Random words for environments that need many of them in every step."""

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
