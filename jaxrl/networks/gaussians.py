"""Distributions of continuous actions: a normal one, and one squashed into bounds."""

from __future__ import annotations

import math
from typing import ClassVar

import chex
import flax.struct
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.distributions import NoiseKind, to_rank_of
from jaxrl.types import Array

# Share of the range that `unsquash` keeps from the bounds, where the inverse of tanh is infinite.
_LEAST_UNIT = 5e-4

# Gauss-Hermite rule for E[f(z)], z ~ N(0, 1). With 16 nodes the entropy of `TanhGaussian` is exact to
# 2e-5 per component for std <= 1, to 4e-3 for std = 2, and to 0.1 (of about 5) for std = 4.
_NODES_64, _WEIGHTS_64 = np.polynomial.hermite_e.hermegauss(16)
_NODES = _NODES_64.astype(np.float32)
_WEIGHTS = (_WEIGHTS_64 / _WEIGHTS_64.sum()).astype(np.float32)


@flax.struct.dataclass
class Gaussian:
    """Independent normal components; actions are float32[..., D] and unbounded.

    The action is not clipped here: its log-probability is the unclipped action's, and the scaled and clipped
    copy goes to the environment only. A density of the clipped action would be wrong at the bounds.

    Attributes:
      mean: float[..., D].
      log_std: float[..., D], natural logarithm of the standard deviation.
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

    def _float32(self) -> tuple[Array, Array]:
        chex.assert_equal_shape([self.mean, self.log_std])
        return self.mean.astype(jnp.float32), self.log_std.astype(jnp.float32)


@flax.struct.dataclass
class TanhGaussian:
    """A normal u squashed to a = tanh(u) in (-1, 1)^D (Haarnoja et al. 2018, SAC, appendix C).

    Actions are the PRE-squash u, float32[..., D]: atanh(a) of a stored a loses everything once tanh
    saturates. `log_prob` and `entropy` refer to a. `squash` maps u into the action space; the further
    affine map to the bounds would add the constant -sum_d log((high_d - low_d) / 2) to `log_prob`. It is
    left out: it cancels in the probability ratio and has no gradient in the entropy.

    Attributes:
      mean: float[..., D], of u.
      log_std: float[..., D], of u.
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

    def _base(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std)


def clip(action: Array, low: Array, high: Array) -> Array:
    """Environment actions from a `Gaussian`'s: within the bounds float[D], broadcast to float[..., D]."""
    return jnp.clip(action, to_rank_of(action, low), to_rank_of(action, high))


def squash(pre_squash: Array, low: Array, high: Array) -> Array:
    """Environment actions from a `TanhGaussian`'s: low + (tanh(u) + 1) / 2 * (high - low).

    Args:
      pre_squash: float[..., D], u.
      low: float[D] or scalar, finite lower bounds.
      high: float[D] or scalar, finite upper bounds.

    Returns:
      float32[..., D] within the bounds, rounding included.
    """
    unit = 0.5 * (jnp.tanh(pre_squash.astype(jnp.float32)) + 1.0)
    low, high = (to_rank_of(unit, jnp.asarray(bound, jnp.float32)) for bound in (low, high))
    return jnp.clip(low + unit * (high - low), low, high)


def unsquash(action: Array, low: Array, high: Array) -> Array:
    """Inverse of `squash`, for actions that were not taken by a `TanhGaussian`.

    Args:
      action: float[..., D], within the bounds.
      low, high: as of `squash`.

    Returns:
      float32[..., D], the pre-squash u. At a bound that is infinite: an action counts as a thousandth of the
      range inside of both, where |u| is at most 3.8. 0 where both bounds are the same.
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
