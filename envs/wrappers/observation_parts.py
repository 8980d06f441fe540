"""Numbers that a wrapper adds to an observation: behind a vector, or as a part of a dict."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace

_WHOLE = "observation"


@dataclasses.dataclass(frozen=True)
class ObservationPart:
    """A vector of numbers that observations of `space` get.

    A Box of one dimension becomes float32 and has them behind its own numbers; a `Dict` has them as one more
    part, `name`; any other observation becomes a `Dict` of `observation` and `name`.

    Attributes:
      wrapper: which adds them, for errors.
      space: of the observation without them.
      name: of the part.
      low, high: the bounds of the numbers, [F] each.
    """

    wrapper: str
    space: Space
    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if isinstance(self.space, GraphSpace):
            raise ValueError(f"wrapper {self.wrapper} does not serve observations that are graphs")
        if isinstance(self.space, Dict) and self.name in dict(self.space.spaces):
            raise ValueError(f"wrapper {self.wrapper}: the observation already has a part {self.name!r}")

    @property
    def _is_appended(self) -> bool:
        return isinstance(self.space, Box) and len(self.space.shape) == 1

    @property
    def joined_space(self) -> Space:
        """The space of `join`."""
        box = Box(self.low, self.high, (len(self.low),))
        if isinstance(self.space, Dict):
            return Dict(tuple(sorted([*self.space.spaces, (self.name, box)])))
        if isinstance(self.space, Box) and self._is_appended:
            low, high = self.space.low + self.low, self.space.high + self.high
            return Box(low, high, (len(low),))
        return Dict(((_WHOLE, self.space), (self.name, box)))

    def join(self, obs: Any, numbers: jax.Array) -> Any:
        """The observation, an element of `space`, with float32[F]."""
        if isinstance(self.space, Dict):
            return obs | {self.name: numbers}
        if self._is_appended:
            return jnp.concatenate([obs.astype(jnp.float32), numbers])
        return {_WHOLE: obs, self.name: numbers}
