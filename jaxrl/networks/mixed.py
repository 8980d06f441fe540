"""A distribution over actions of several parts, each with its own distribution."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.struct
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, Mixed
from jaxrl.networks.distributions import NoiseKind, uniform_of_normal
from jaxrl.types import Array


def parameters_of(distribution: Any) -> dict[str, Array]:
    """The arrays of a distribution, float32 by name: `logits`, or `PART.logits` of an action's parts."""
    if isinstance(distribution, ProductDistribution):
        named = zip(distribution.space.spaces, distribution.parts, strict=True)
        found = [(name, parameters_of(part)) for (name, _), part in named]
        return {f"{name}.{key}": x for name, arrays in found for key, x in arrays.items()}
    return {
        field.name: getattr(distribution, field.name).astype(jnp.float32)
        for field in dataclasses.fields(distribution)
        if field.metadata.get("pytree_node", True)
    }


@flax.struct.dataclass
class ProductDistribution:
    """Independent parts; actions are float32[..., n], the numbers of all parts (`jaxrl.envs.base.Mixed`).

    Attributes:
      parts: a `Distribution` for each part of the space.
      space: static.
    """

    parts: tuple[Any, ...]
    space: Mixed = flax.struct.field(pytree_node=False)
    noise_kind: ClassVar[NoiseKind] = "normal"

    def sample(self, noise: Array) -> Array:
        """float32[..., n], from standard normal noise of [..., n].

        For discrete parts its distribution function makes it uniform.
        """
        chosen = []
        for (_, space), part, x in self._with(noise):
            if part.noise_kind == "uniform":
                x = uniform_of_normal(x)
            chosen.append(part.sample(x[..., 0] if isinstance(space, Discrete) else x))
        return self._join(chosen)

    def log_prob(self, action: Array) -> Array:
        """float32[...]: the sum of the parts' log-probabilities and log-densities."""
        total = jnp.zeros(action.shape[:-1], jnp.float32)
        for (_, space), part, x in self._with(action):
            if part.noise_kind == "uniform":
                x = x.astype(jnp.int32)
            total = total + part.log_prob(x[..., 0] if isinstance(space, Discrete) else x)
        return total

    def entropy(self) -> Array:
        """float32[...]: the sum of the parts' entropies."""
        return jnp.sum(jnp.stack([part.entropy() for part in self.parts]), axis=0)

    def mode(self) -> Array:
        """float32[..., n]: each part's greedy action."""
        return self._join([part.mode() for part in self.parts])

    def _with(self, x: Array) -> Any:
        return zip(self.space.spaces, self.parts, self.space.split(x), strict=True)

    def _join(self, chosen: list[Array]) -> Array:
        spaces = [space for _, space in self.space.spaces]
        vectors = [
            x[..., None] if isinstance(space, Discrete) else x
            for space, x in zip(spaces, chosen, strict=True)
        ]
        return jnp.concatenate([x.astype(jnp.float32) for x in vectors], axis=-1)
