"""Distributions of continuous actions, a normal one and one squashed into bounds, and their scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import chex
import flax.struct
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Space
from jaxrl.envs.spaces import FARTHEST
from jaxrl.networks.distributions import NoiseKind, to_rank_of
from jaxrl.networks.operations import Layer, bounds_of
from jaxrl.types import Array

# Share of the range that `unsquash` keeps from the bounds, where the inverse of tanh is infinite.
_LEAST_UNIT = 5e-4

# Symmetric bounds that suit a deviation of 1 as they are: most suites', 0.4 (MuJoCo's Humanoid) to 3.
_SUITABLE = (0.25, 4.0)

# Gauss-Hermite rule for E[f(z)], z ~ N(0, 1). With 16 nodes the entropy of `TanhGaussian` is exact to
# 2e-5 per component for std <= 1, to 4e-3 for std = 2, and to 0.1 (of about 5) for std = 4.
_NODES_64, _WEIGHTS_64 = np.polynomial.hermite_e.hermegauss(16)
_NODES = _NODES_64.astype(np.float32)
_WEIGHTS = (_WEIGHTS_64 / _WEIGHTS_64.sum()).astype(np.float32)


@flax.struct.dataclass
class Gaussian:
    """Independent normal components; actions are float32[..., D] and unbounded.

    The action is not clipped here: its log-probability is the unclipped action's, and the scaled and clipped
    copy goes to the environment only. A density of the clipped action would be wrong at the bounds. Mean and
    natural logarithm of the standard deviation are float[..., D].
    """

    mean: Array
    log_std: Array
    noise_kind: ClassVar[NoiseKind] = "normal"

    def sample(self, noise: Array) -> Array:
        """float32[..., D]: mean + std * noise, for standard normal noise of [..., D]."""
        mean, log_std = self._float32()
        chex.assert_equal_shape([mean, noise])
        return mean + jnp.exp(log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """float32[...]: sum_d -((a - mean) / std)^2 / 2 - log std - log(2 pi) / 2."""
        mean, log_std = self._float32()
        chex.assert_equal_shape([mean, action])
        z = (action.astype(jnp.float32) - mean) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * (z * z + math.log(2 * math.pi)) - log_std, axis=-1)

    def entropy(self) -> Array:
        """float32[...]: sum_d log std + log(2 pi e) / 2."""
        _, log_std = self._float32()
        return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def mode(self) -> Array:
        """float32[..., D]: the mean."""
        return self._float32()[0]

    def divergence(self, other: Gaussian) -> Array:
        """float32[...]: sum_d log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2."""
        mean_p, log_std_p = self._float32()
        mean_q, log_std_q = other._float32()
        chex.assert_equal_shape([mean_p, mean_q])
        squares = jnp.exp(2.0 * (log_std_p - log_std_q)) + jnp.square((mean_p - mean_q) * jnp.exp(-log_std_q))
        return jnp.sum(log_std_q - log_std_p + 0.5 * (squares - 1.0), axis=-1)

    def _float32(self) -> tuple[Array, Array]:
        chex.assert_equal_shape([self.mean, self.log_std])
        return self.mean.astype(jnp.float32), self.log_std.astype(jnp.float32)


@flax.struct.dataclass
class TanhGaussian:
    """A normal u squashed to a = tanh(u) in (-1, 1)^D (Haarnoja et al. 2018, SAC, appendix C).

    Actions are the PRE-squash u, float32[..., D]: atanh(a) of a stored a loses everything once tanh
    saturates. `log_prob` and `entropy` refer to a. `squash` maps u into the action space; the further
    affine map to the bounds would add the constant -sum_d log((high_d - low_d) / 2) to `log_prob`. It is
    left out: it cancels in the probability ratio and has no gradient in the entropy. `mean` and `log_std`
    are float[..., D], of u.
    """

    mean: Array
    log_std: Array
    noise_kind: ClassVar[NoiseKind] = "normal"

    def sample(self, noise: Array) -> Array:
        """float32[..., D]: u = mean + std * noise, for standard normal noise of [..., D]."""
        return self._base().sample(noise)

    def log_prob(self, action: Array) -> Array:
        """float32[...]: log N(u; mean, std) - sum_d log(da_d / du_d), for u = `action` of [..., D]."""
        log_det = jnp.sum(_log_tanh_derivative(action.astype(jnp.float32)), axis=-1)
        return self._base().log_prob(action) - log_det

    def entropy(self) -> Array:
        """float32[...]: H[u] + sum_d E[log(da_d / du_d)], the expectation by Gauss-Hermite quadrature.

        H[u] alone would be wrong: it grows with std without end, while a is pushed to its bounds and its
        entropy falls, so an entropy bonus would saturate the policy. The single-sample estimate -log_prob
        is unbiased but noisy. The quadrature is deterministic and differentiable in mean and log_std.
        """
        base = self._base()
        mean = base.mean[..., None]
        log_std = base.log_std[..., None]
        u = mean.astype(jnp.float32) + jnp.exp(log_std.astype(jnp.float32)) * to_rank_of(mean, _NODES)
        derivative = _log_tanh_derivative(u)
        return base.entropy() + jnp.sum(derivative * to_rank_of(u, _WEIGHTS), axis=(-2, -1))

    def mode(self) -> Array:
        """float32[..., D]: the mean of u, whose tanh is the median (not the mode) of a."""
        return self._base().mode()

    def divergence(self, other: TanhGaussian) -> Array:
        return self._base().divergence(other._base())  # a bijection such as tanh changes none

    def _base(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std)


def squash(pre_squash: Array, low: Array, high: Array) -> Array:
    """Environment actions from a `TanhGaussian`'s u: low + (tanh(u) + 1) / 2 * (high - low).

    Float32[..., D] within the bounds, rounding included, which are finite float[D] or scalars.
    """
    unit = 0.5 * (jnp.tanh(pre_squash.astype(jnp.float32)) + 1.0)
    low, high = (to_rank_of(unit, jnp.asarray(bound, jnp.float32)) for bound in (low, high))
    return jnp.clip(low + unit * (high - low), low, high)


def unsquash(action: Array, low: Array, high: Array) -> Array:
    """Inverse of `squash` for actions not taken by a `TanhGaussian`: float32[..., D], the pre-squash u.

    At a bound that is infinite: an action counts as a thousandth of the range inside of both, where |u| is at
    most 3.8. 0 where both bounds are the same.
    """
    low, high = (to_rank_of(action, jnp.asarray(bound, jnp.float32)) for bound in (low, high))
    width = high - low
    unit = (action.astype(jnp.float32) - low) / jnp.where(width > 0, width, 1.0)
    unit = jnp.clip(jnp.where(width > 0, unit, 0.5), _LEAST_UNIT, 1.0 - _LEAST_UNIT)
    return jnp.arctanh(2.0 * unit - 1.0)


def _log_tanh_derivative(u: Array) -> Array:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), written in |u| (it is even): never overflows."""
    magnitude = jnp.abs(u)
    return 2.0 * (math.log(2.0) - magnitude - jnp.log1p(jnp.exp(-2.0 * magnitude)))


def is_vector_of_floats(space: Space) -> TypeGuard[Box]:
    """True of a space whose actions are several floats; integers would not be, and be cut off on the way."""
    if not (isinstance(space, Box) and len(space.shape) == 1):
        return False
    return bool(jnp.issubdtype(space.dtype, jnp.floating))


@dataclass(frozen=True)
class ActionScale:
    """Maps a policy's numbers to a space, component by component, and clips them there.

    A Gaussian begins with mean 0 and a deviation of about 1. In a space from 0 to 1000 that is a corner: half
    of the actions would be clipped to 0, and the others would hardly differ from it. Densities stay over the
    policy's own numbers: the map would add the constant `-sum log half_width` to the logarithm, which cancels
    in ratios.

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
        middle, half_width = np.array(self.middle), np.array(self.half_width)
        low, high = ((np.array(bound) - middle) / half_width for bound in (self.space.low, self.space.high))
        return Box.of(low, high, self.space.shape) if self.is_needed else self.space

    def to_env(self, action: Array) -> Array:
        """float32[..., D] within the bounds, of the policy's numbers."""
        if self.is_needed:
            middle, half_width = self._constants(action)
            action = middle + half_width * action
        bounds = (jnp.asarray(bound, jnp.float32) for bound in (self.space.low, self.space.high))
        return jnp.clip(action, *(to_rank_of(action, bound) for bound in bounds))

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
