"""Random numbers of `jax.random`, bit for bit, as one kernel.

XLA for CPU gets the rounds of Threefry as a loop from JAX, to compile quickly: some sixty kernels, which take
longer than the rest of a small sample.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl.types import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """uint32[*shape], `jax.random.bits`."""
    words = jax.random.key_data(key)
    if words.shape != (2,) or not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return jax.random.bits(key, shape, jnp.uint32)
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    first, second = threefry(words[0], words[1], jnp.zeros_like(count), count)
    return first ^ second


def uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """float32[*shape] on [0, 1), `jax.random.uniform`."""
    mantissa = bits(key, shape) >> 9
    one_and_more = jax.lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800000), jnp.float32)
    return one_and_more - 1.0


def threefry(first_key: Array, second_key: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Args:
      first_key, second_key: uint32[], the key.
      x, y: uint32[...], the counter.

    Returns:
      Two words of random bits, uint32[...] each.
    """
    keys = (first_key, second_key, first_key ^ second_key ^ jnp.uint32(_PARITY))
    x = x + keys[0]
    y = y + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << rotation) | (y >> (32 - rotation)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y
