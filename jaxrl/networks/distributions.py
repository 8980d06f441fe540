"""Action distributions: what a head returns, with randomness passed in.

Randomness enters as `noise`, drawn once per rollout (`draw_noise`) outside the scan over time: one
large draw is cheaper than T small ones, and the action becomes a pure function of policy and noise.
Everything is computed in float32, also from bfloat16 parameters.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol

import chex
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.types import Array

NoiseKind = Literal["uniform", "normal"]

# Far below any logit a network produces, yet finite: exp() of it is exactly 0 after the maximum is
# subtracted, and 0 * MASKED_LOGIT is 0 where 0 * -inf would be NaN.
MASKED_LOGIT = -1e9

# Up to this many categories the prefix sum is unrolled into elementwise operations, which fuse; 2 to 4
# times faster on CPU than `jnp.cumsum` inside a rollout scan.
_MAX_UNROLLED_CATEGORIES = 64

# The largest float32 below 1: uniform noise lies in [0, 1).
_BELOW_ONE = 1.0 - 2.0**-24

# Share of the range that `unsquash` keeps from the bounds, where the inverse of tanh is infinite.
_LEAST_UNIT = 5e-4

# Gauss-Hermite rule for E[f(z)], z ~ N(0, 1). With 16 nodes the entropy of `TanhGaussian` is exact to
# 2e-5 per component for std <= 1, to 4e-3 for std = 2, and to 0.1 (of about 5) for std = 4.
_NODES_64, _WEIGHTS_64 = np.polynomial.hermite_e.hermegauss(16)
_NODES = _NODES_64.astype(np.float32)
_WEIGHTS = (_WEIGHTS_64 / _WEIGHTS_64.sum()).astype(np.float32)


class Distribution(Protocol):
    """A batch of action distributions; `...` are its batch dimensions.

    Attributes:
      noise_kind: the kind of noise `sample` expects, an argument of `draw_noise`. The head that builds
        the distribution decides the shape: one number per action component.
    """

    noise_kind: ClassVar[NoiseKind]

    def sample(self, noise: Array) -> Array:
        """Maps noise to an action; deterministic."""
        ...

    def log_prob(self, action: Array) -> Array:
        """float32[...]: log-probability (or log-density) of `action`, summed over its components."""
        ...

    def entropy(self) -> Array:
        """float32[...]: entropy in nats, summed over the action's components."""
        ...

    def mode(self) -> Array:
        """The greedy action."""
        ...


def draw_noise(kind: NoiseKind, key: Array, shape: tuple[int, ...]) -> Array:
    """float32[shape]: uniform on [0, 1) or standard normal noise for `Distribution.sample`."""
    if kind == "uniform":
        return jax.random.uniform(key, shape, jnp.float32)
    if kind == "normal":
        return jax.random.normal(key, shape, jnp.float32)
    raise ValueError(f"noise kind (={kind!r}) must be 'uniform' or 'normal'")


def uniform_of_normal(noise: Array) -> Array:
    """float32[...]: uniform noise on [0, 1) from standard normal noise, by its distribution function."""
    return jnp.minimum(jax.scipy.stats.norm.cdf(noise), _BELOW_ONE)


def elementwise(distribution: Any) -> Any:
    """The same distribution, with sums over few categories written out.

    A reduction is a kernel of its own on a GPU; additions are part of the one around them.
    """
    if isinstance(distribution, Categorical):
        return dataclasses.replace(distribution, written_out=True)
    return distribution


def mask_logits(logits: Array, mask: Array | None) -> Array:
    """Gives forbidden actions probability 0, with every value and gradient finite.

    Args:
      logits: float[..., A].
      mask: bool, broadcastable to `logits`; True where the action is allowed; None allows all. At least
        one action (of each component) must be allowed, else all of them become equally likely.

    Returns:
      float32[..., A].
    """
    logits = logits.astype(jnp.float32)
    if mask is None:
        return logits
    chex.assert_type(mask, bool)
    return jnp.where(mask, logits, MASKED_LOGIT)


@flax.struct.dataclass
class Categorical:
    """One of A actions with probability softmax(logits); actions are int32[...].

    Attributes:
      logits: float[..., A], unnormalised; masked ones (`mask_logits`) have probability 0.
      written_out: whether sums over few categories are written out, see `elementwise`.
    """

    logits: Array
    written_out: bool = flax.struct.field(pytree_node=False, default=False)
    noise_kind: ClassVar[NoiseKind] = "uniform"

    def sample(self, noise: Array) -> Array:
        """int32[...], from uniform noise float32[...], by inversion of the CDF.

        With weights w_i = exp(logits_i - max logits), the action is the last i that has w_i > 0 and
        w_0 + ... + w_{i-1} <= noise * sum(w). An action of probability 0 is never chosen, whatever the
        noise and the rounding: only i with w_i > 0 are candidates, and the first of them always is one,
        because the sum of the zeros before it is exactly 0.
        """
        chex.assert_shape(noise, self.logits.shape[:-1])
        logits = self.logits.astype(jnp.float32)
        weight = jnp.exp(logits - self._over(jnp.maximum, jnp.max, logits)[..., None])
        threshold = noise * self._over(jnp.add, jnp.sum, weight)
        num_categories = weight.shape[-1]
        if num_categories > _MAX_UNROLLED_CATEGORIES:
            weight_before = jnp.cumsum(weight, axis=-1) - weight
            candidate = (weight > 0) & (weight_before <= threshold[..., None])
            category = _to_rank_of(candidate, jnp.arange(num_categories, dtype=jnp.int32))
            return jnp.max(jnp.where(candidate, category, 0), axis=-1)
        action = jnp.zeros(noise.shape, jnp.int32)
        before = jnp.zeros(noise.shape, jnp.float32)
        for i in range(num_categories):
            action = jnp.where((weight[..., i] > 0) & (before <= threshold), i, action)
            before = before + weight[..., i]
        return action

    def log_prob(self, action: Array) -> Array:
        """float32[...]: log softmax(logits)[action], for integer `action` of [...]."""
        chex.assert_type(action, int)
        chex.assert_shape(action, self.logits.shape[:-1])
        # Selecting by comparison: the gradient of an indexed read is a scatter, which is slow.
        category = _to_rank_of(self.logits, jnp.arange(self.logits.shape[-1], dtype=jnp.int32))
        chosen = action[..., None].astype(jnp.int32) == category
        return self._over(jnp.add, jnp.sum, jnp.where(chosen, self._log_probs(), 0.0))

    def entropy(self) -> Array:
        """float32[...]: -sum_i p_i log p_i; masked actions add exactly 0."""
        log_probs = self._log_probs()
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    def mode(self) -> Array:
        """int32[...]: the most probable action, the first of equals."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def _log_probs(self) -> Array:
        logits = self.logits.astype(jnp.float32)
        if not self.written_out:
            return jax.nn.log_softmax(logits, axis=-1)
        shifted = logits - self._over(jnp.maximum, jnp.max, logits)[..., None]
        return shifted - jnp.log(self._over(jnp.add, jnp.sum, jnp.exp(shifted)))[..., None]

    def _over(
        self, pairwise: Callable[[Array, Array], Array], reduction: Callable[..., Array], x: Array
    ) -> Array:
        """A reduction over categories."""
        if not self.written_out or x.shape[-1] > _MAX_UNROLLED_CATEGORIES:
            return reduction(x, axis=-1)
        return functools.reduce(pairwise, [x[..., i] for i in range(x.shape[-1])])


@flax.struct.dataclass
class MultiCategorical:
    """Independent categorical components; actions are int32[..., n] with n = len(nvec).

    Attributes:
      logits: float[..., sum(nvec)]; the components' logits one after the other.
      nvec: number of categories of each component; static.
    """

    logits: Array
    nvec: tuple[int, ...] = flax.struct.field(pytree_node=False)
    noise_kind: ClassVar[NoiseKind] = "uniform"

    def sample(self, noise: Array) -> Array:
        """int32[..., n], from uniform noise float32[..., n] (see `Categorical.sample`)."""
        return self._components().sample(noise)

    def log_prob(self, action: Array) -> Array:
        """float32[...]: the sum of the components' log-probabilities, for integer `action` of [..., n]."""
        return jnp.sum(self._components().log_prob(action), axis=-1)

    def entropy(self) -> Array:
        """float32[...]: the sum of the components' entropies."""
        return jnp.sum(self._components().entropy(), axis=-1)

    def mode(self) -> Array:
        """int32[..., n]: each component's most probable category."""
        return self._components().mode()

    def _components(self) -> Categorical:
        """The components as one batch of [..., n, max(nvec)], padded with categories of probability 0."""
        chex.assert_axis_dimension(self.logits, -1, sum(self.nvec))
        logits = self.logits.astype(jnp.float32)
        widest = max(self.nvec)
        if min(self.nvec) == widest:
            return Categorical(logits.reshape(*logits.shape[:-1], len(self.nvec), widest))
        batch_padding = [(0, 0)] * (logits.ndim - 1)
        components = [
            # Twice the masked value: the padding stays impossible even if a whole component is masked.
            jnp.pad(part, [*batch_padding, (0, widest - part.shape[-1])], constant_values=2 * MASKED_LOGIT)
            for part in jnp.split(logits, np.cumsum(self.nvec)[:-1].tolist(), axis=-1)
        ]
        return Categorical(jnp.stack(components, axis=-2))


@flax.struct.dataclass
class Gaussian:
    """Independent normal components; actions are float32[..., D] and unbounded.

    The action is not clipped here: its log-probability is the unclipped action's, and the clipped copy
    goes to the environment only. A density of the clipped action would be wrong at the bounds.

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
        mean, log_std = base.mean[..., None], base.log_std[..., None]
        u = mean.astype(jnp.float32) + jnp.exp(log_std.astype(jnp.float32)) * _to_rank_of(mean, _NODES)
        derivative = _log_tanh_derivative(u)
        return base.entropy() + jnp.sum(derivative * _to_rank_of(u, _WEIGHTS), axis=(-2, -1))

    def mode(self) -> Array:
        """float32[..., D]: the mean of u, whose tanh is the median (not the mode) of a."""
        return self._base().mode()

    def _base(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std)


def clip(action: Array, low: Array, high: Array) -> Array:
    """Environment actions from a `Gaussian`'s: within the bounds float[D], broadcast to float[..., D]."""
    return jnp.clip(action, _to_rank_of(action, low), _to_rank_of(action, high))


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
    low, high = (_to_rank_of(unit, jnp.asarray(bound, jnp.float32)) for bound in (low, high))
    return jnp.clip(low + unit * (high - low), low, high)


def unsquash(action: Array, low: Array, high: Array) -> Array:
    """Inverse of `squash`, for actions that were not taken by a `TanhGaussian`.

    Args:
      action: float[..., D], within the bounds.
      low, high: as of `squash`.

    Returns:
      float32[..., D], the pre-squash u. At a bound that is infinite: an action counts as a thousandth of the
      range inside of both, where |u| is at most 3.8.
    """
    low, high = (_to_rank_of(action, jnp.asarray(bound, jnp.float32)) for bound in (low, high))
    unit = jnp.clip((action.astype(jnp.float32) - low) / (high - low), _LEAST_UNIT, 1.0 - _LEAST_UNIT)
    return jnp.arctanh(2.0 * unit - 1.0)


def _to_rank_of(x: Array, last: Array | np.ndarray) -> Array:
    """Adds leading dimensions of 1 to `last`, an array over the last dimensions of `x`."""
    return jax.lax.broadcast_to_rank(last, x.ndim)


def _log_tanh_derivative(u: Array) -> Array:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), written in |u| (it is even): never overflows."""
    magnitude = jnp.abs(u)
    return 2.0 * (math.log(2.0) - magnitude - jnp.log1p(jnp.exp(-2.0 * magnitude)))
