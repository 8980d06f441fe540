"""Maps a Gaussian policy's numbers to a space, by the middle and half the width of its bounds.

A Gaussian begins with mean 0 and a deviation of about 1. In a space from 0 to 1000 that is a corner: half of
the actions would be clipped to 0, and the others would hardly differ from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Space
from jaxrl.envs.spaces import FARTHEST
from jaxrl.networks import gaussians
from jaxrl.networks.distributions import to_rank_of
from jaxrl.networks.operations import Layer, bounds_of
from jaxrl.types import Array

# Symmetric bounds that suit a deviation of 1 as they are: most suites', 0.4 (MuJoCo's Humanoid) to 3.
_SUITABLE = (0.25, 4.0)


def is_vector_of_floats(space: Space) -> TypeGuard[Box]:
    """True of a space whose actions are several floats; integers would not be, and be cut off on the way."""
    if not (isinstance(space, Box) and len(space.shape) == 1):
        return False
    return bool(jnp.issubdtype(space.dtype, jnp.floating))


@dataclass(frozen=True)
class ActionScale:
    """The affine map, component by component, and the clipping after it.

    Densities stay over the policy's own numbers: the map would add the constant `-sum log half_width` to the
    logarithm, which cancels in ratios.

    Attributes:
      space: bounds, one-dimensional.
      middle, half_width: D numbers of float32; 0 and 1 of components that are taken as they are.
    """

    space: Box
    # Tuples, not arrays: heads are part of algorithms, which programs take as static arguments.
    middle: tuple[float, ...]
    half_width: tuple[float, ...]

    @classmethod
    def of(cls, space: Box) -> ActionScale:
        """The scale that suits the bounds.

        A component with two finite bounds is scaled to [-1, 1], unless it is symmetric about 0 and of a width
        that suits a deviation of 1. With one bound it is moved, if need be, until that is a deviation away.
        """
        found = [_middle_and_half_width(*sides) for sides in zip(space.low, space.high, strict=True)]
        middle, half_width = np.array(found, np.float32).reshape(-1, 2).T.tolist()
        return cls(space, tuple(middle), tuple(half_width))

    @property
    def is_needed(self) -> bool:
        """False if actions are taken as they are."""
        return any(self.middle) or any(width != 1 for width in self.half_width)

    @property
    def own_space(self) -> Box:
        """The bounds in the policy's numbers."""
        low, high = (
            (np.array(bound) - np.array(self.middle)) / np.array(self.half_width)
            for bound in (self.space.low, self.space.high)
        )
        return Box.of(low, high, self.space.shape) if self.is_needed else self.space

    def to_env(self, action: Array) -> Array:
        """float32[..., D] within the bounds, of the policy's numbers."""
        if self.is_needed:
            middle, half_width = self._constants(action)
            action = middle + half_width * action
        low, high = (jnp.asarray(bound, jnp.float32) for bound in (self.space.low, self.space.high))
        return gaussians.clip(action, low, high)

    def from_env(self, action: Array) -> Array:
        """The policy's numbers of actions that an environment took."""
        if not self.is_needed:
            return action
        middle, half_width = self._constants(action)
        return (action - middle) / half_width

    def describe(self) -> Layer:
        """The bounds, and `middle` and `half_width` where there is a map, as JSON values."""
        scale = {"middle": list(self.middle), "half_width": list(self.half_width)}
        return bounds_of(self.space) | (scale if self.is_needed else {})

    def _constants(self, like: Array) -> tuple[Array, Array]:
        middle, half_width = (np.array(x, np.float32) for x in (self.middle, self.half_width))
        return to_rank_of(like, middle), to_rank_of(like, half_width)


def _middle_and_half_width(low: float, high: float) -> tuple[float, float]:
    has_low = low > -FARTHEST
    has_high = high < FARTHEST
    if has_low and has_high:
        half_width = (high - low) / 2
        least, most = _SUITABLE
        symmetric = math.isclose(low, -high, rel_tol=1e-6)
        if symmetric and least <= half_width <= most:
            return 0.0, 1.0
        return (low + high) / 2, half_width or 1.0
    if has_low:
        return max(low + 1, 0.0), 1.0
    if has_high:
        return min(high - 1, 0.0), 1.0
    return 0.0, 1.0
