"""Linear attention with a fixed decay for each head: a sum of past values, each by how its key fits."""

from __future__ import annotations

import math
from typing import ClassVar

import jax.numpy as jnp

from jaxrl.networks.fast_weights import FastWeights
from jaxrl.networks.kernels.matrix_memory import MemoryInputs, matrix_memory
from jaxrl.types import Array


class LinearAttention(FastWeights):
    """S_t = a S_{t-1} + v_t k_t^T / sqrt(width); y_t = S_t q_t, normalised, gated and added.

    Sun et al. 2023, "Retentive network: a successor to transformer for large language models",
    equations 6 to 8: a = 1 - 2^(-5 - h) for head h, which forgets half of what it holds in 22 steps, the next
    one in 44 and so on. Without the rotation of queries and keys by their position.
    """

    kind: ClassVar[str] = "linear_attention"

    def remember(
        self, u_LNF: Array, projected: tuple[Array, Array, Array], carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        del u_LNF
        query, key, value = projected
        decay = jnp.log1p(-jnp.exp2(-5.0 - jnp.arange(self.heads, dtype=jnp.float32)))
        shape = query.shape[:3]
        inputs = MemoryInputs(
            query=query,
            key=key / math.sqrt(key.shape[-1]),
            value=value,
            log_decay=jnp.broadcast_to(decay[None, None], shape),
            strength=jnp.ones(shape, jnp.float32),
        )
        state, y = matrix_memory(carry["state"], inputs, reset_LN)
        return y, {"state": state}
