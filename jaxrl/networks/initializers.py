"""Orthogonal initial weights, of whole layers and gate by gate."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.custom_batching
import jax.numpy as jnp

from jaxrl.types import Array


def orthogonal(scale: float = 1.0) -> nn.initializers.Initializer:
    """Orthogonal weights of gain `scale` (Saxe et al. 2014), one matrix after the other under vmap.

    jaxlib divides a batch of QR decompositions among the threads that run programs on CPU, and waits for
    them there: two such batches at once, as where seeds are vmapped, can wait for each other for ever.
    """
    initializer = nn.initializers.orthogonal(scale)

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        weights: Array = jax.custom_batching.sequential_vmap(lambda key: initializer(key, shape, dtype))(key)
        return weights

    return init


def per_block_orthogonal(blocks: int) -> nn.initializers.Initializer:
    """Makes each gate's block of columns orthogonal, as if the gates were separate layers."""
    block = orthogonal()

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        rows, columns = shape
        keys = jax.random.split(key, blocks)
        return jnp.concatenate([block(k, (rows, columns // blocks), dtype) for k in keys], axis=-1)

    return init
