"""Initial weights of recurrent layers."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array


def per_block_orthogonal(blocks: int) -> nn.initializers.Initializer:
    """Makes each gate's block of columns orthogonal, as if the gates were separate layers."""
    orthogonal = nn.initializers.orthogonal()

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        rows, columns = shape
        keys = jax.random.split(key, blocks)
        return jnp.concatenate([orthogonal(k, (rows, columns // blocks), dtype) for k in keys], axis=-1)

    return init
