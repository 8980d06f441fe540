"""The parts of an observation, encoded each and joined."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.layers import Dense, activation
from jaxrl.types import Array

_HEADS = 4  # of attention between parts, if they divide the size


class PartsEncoder(nn.Module):
    """An encoder for each part of an observation that an architecture sees, and their fusion.

    Attributes:
      encoders: with the key of what each encodes; "" for the whole observation.
    """

    encoders: tuple[tuple[str, nn.Module], ...]
    fusion: nn.Module

    @nn.compact
    def __call__(self, obs: Any) -> Array:
        return self.fusion([encoder(obs[key] if key else obs) for key, encoder in self.encoders])


class Fusion(nn.Module):
    """A module from features [..., F] of each part to [..., size]."""

    size: int
    activation: str
    dtype: jnp.dtype

    def __call__(self, parts: list[Array]) -> Array:
        raise NotImplementedError


class Concatenation(Fusion):
    """A dense layer over all features; without one if `size` is 0."""

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        x = jnp.concatenate(parts, axis=-1)
        if self.size == 0:
            return x
        return activation(self.activation)(Dense(self.size, math.sqrt(2), self.dtype)(x))


class GatedSum(Fusion):
    """A sum of dense layers of the parts, each unit weighted by a sigmoid of all features.

    Arevalo et al. 2017, "Gated Multimodal Units for Information Fusion".
    """

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        act = activation(self.activation)
        every = jnp.concatenate(parts, axis=-1)
        gates = nn.sigmoid(Dense(self.size * len(parts), 1.0, self.dtype)(every))
        seen = [act(Dense(self.size, math.sqrt(2), self.dtype)(part)) for part in parts]
        shares = jnp.split(gates, len(parts), axis=-1)
        return sum((gate * x for gate, x in zip(shares, seen, strict=True)), jnp.zeros_like(seen[0]))


class PartAttention(Fusion):
    """Attention of the parts to each other, then their mean (Vaswani et al. 2017; one layer, residual)."""

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        act = activation(self.activation)
        x = jnp.stack([act(Dense(self.size, math.sqrt(2), self.dtype)(part)) for part in parts], axis=-2)
        heads = _HEADS if self.size % _HEADS == 0 else 1
        dense = lambda: Dense(self.size, 1.0, self.dtype)  # noqa: E731
        query, key, value = (dense()(x).reshape(*x.shape[:-1], heads, -1) for _ in range(3))
        score = jnp.einsum("...phd,...qhd->...hpq", query, key).astype(jnp.float32)
        share = jax.nn.softmax(score / math.sqrt(self.size // heads), axis=-1).astype(self.dtype)
        heard = jnp.einsum("...hpq,...qhd->...phd", share, value).reshape(x.shape)
        return jnp.mean(x + dense()(heard), axis=-2)


FUSIONS: dict[str, type[Fusion]] = {
    "concatenate": Concatenation,
    "gated": GatedSum,
    "attention": PartAttention,
}
