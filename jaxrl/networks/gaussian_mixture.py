"""A mixture of Gaussians over continuous actions: where several are right, their mean may be wrong.

Bishop 1994, "Mixture density networks"; as a policy cloned from demonstrations in Mandlekar et al. 2021,
"What matters in learning from offline human demonstrations", whose code is robomimic.
"""

from __future__ import annotations

import math
from typing import ClassVar

import chex
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box
from jaxrl.envs.spaces import FARTHEST
from jaxrl.networks.distributions import Categorical, NoiseKind, uniform_of_normal
from jaxrl.networks.gaussians import ActionScale, Gaussian
from jaxrl.networks.layers import Dense, weights_of
from jaxrl.networks.operations import Layer
from jaxrl.types import Array

# Below it a density of demonstrations that never vary would grow without end. robomimic has 1e-4: means of
# size 1 are 1e-7 apart in float32, a thousandth of that, which a ratio of probabilities would show.
LEAST_STD = 1e-3


@flax.struct.dataclass
class GaussianMixture:
    """One of K components, each of independent normals; actions are float32[..., D] and unbounded.

    All of an action is of the same component. As with `Gaussian`, the scaled and clipped copy goes to the
    environment only.

    Attributes:
      logits: float[..., K], of the components, unnormalised.
      mean, log_std: float[..., K, D]; natural logarithm of the standard deviation.
    """

    logits: Array
    mean: Array
    log_std: Array
    noise_kind: ClassVar[NoiseKind] = "normal"

    def sample(self, noise: Array) -> Array:
        """float32[..., D], from standard normal noise of [..., D + 1]: the last picks the component."""
        _, mean, log_std = self._float32()
        chex.assert_shape(noise, (*mean.shape[:-2], mean.shape[-1] + 1))
        component = Categorical(self.logits).sample(uniform_of_normal(noise[..., -1]))
        mean, log_std = (self._of(component, x) for x in (mean, log_std))
        return mean + jnp.exp(log_std) * noise[..., :-1]

    def log_prob(self, action: Array) -> Array:
        """float32[...]: log sum_k w_k prod_d N(a_d; mean_kd, std_kd)."""
        log_weight, mean, log_std = self._float32()
        chex.assert_shape(action, (*mean.shape[:-2], mean.shape[-1]))
        z = (action.astype(jnp.float32)[..., None, :] - mean) * jnp.exp(-log_std)
        density = jnp.sum(-0.5 * (z * z + math.log(2 * math.pi)) - log_std, axis=-1)
        return jax.nn.logsumexp(log_weight + density, axis=-1)

    def entropy(self) -> Array:
        """float32[...]: a lower bound of the entropy, which has no closed form.

        sum_i w_i (H_i - log sum_j w_j exp(-B_ij)) with the Bhattacharyya distances B between components
        (Kolchinsky and Tracey 2017, "Estimating mixture entropy with pairwise distances"). It is exact where
        all components are the same, and where none overlaps another.
        """
        log_weight, mean, log_std = self._float32()
        own = jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)
        first, second = (jnp.expand_dims(log_std, axis) for axis in (-2, -3))
        # log of the mean of both variances, from the logarithms: a variance may be too small for float32.
        log_mean_variance = jnp.logaddexp(2.0 * first, 2.0 * second) - math.log(2.0)
        apart = jnp.square(jnp.expand_dims(mean, -2) - jnp.expand_dims(mean, -3))
        distance = jnp.sum(
            apart * jnp.exp(-log_mean_variance) / 8.0 + 0.5 * (log_mean_variance - first - second), axis=-1
        )
        overlap = jax.nn.logsumexp(jnp.expand_dims(log_weight, -2) - distance, axis=-1)
        return jnp.sum(jnp.exp(log_weight) * (own - overlap), axis=-1)

    def mode(self) -> Array:
        """float32[..., D]: the mean of the component of the largest weight, the first of equals."""
        return self._of(Categorical(self.logits).mode(), self._float32()[1])

    def divergence(self, other: GaussianMixture) -> Array:
        """float32[...]: an upper bound of KL(self || other) in nats, 0 where both are the same.

        KL(w || v) + sum_k w_k KL(p_k || q_k): the divergence of action and component together, which is at
        least the action's (Do 2003, "Fast approximation of Kullback-Leibler distance for dependence trees and
        hidden Markov models"). Components are paired by index, as a policy's are with its clone's.
        """
        log_w, mean_p, log_std_p = self._float32()
        log_v, mean_q, log_std_q = other._float32()
        chex.assert_equal_shape([mean_p, mean_q])
        of_components = Gaussian(mean_p, log_std_p).divergence(Gaussian(mean_q, log_std_q))
        return jnp.sum(jnp.exp(log_w) * (log_w - log_v + of_components), axis=-1)

    def _of(self, component: Array, x: Array) -> Array:
        """The part of [..., K, D] for a component int32[...].

        Selecting by comparison: the gradient of an indexed read is a scatter, which is slow.
        """
        index = jax.lax.broadcast_to_rank(jnp.arange(x.shape[-2], dtype=jnp.int32), x.ndim - 1)
        chosen = component[..., None] == index
        return jnp.sum(jnp.where(chosen[..., None], x, 0.0), axis=-2)

    def _float32(self) -> tuple[Array, Array, Array]:
        """(logarithms of the weights, means, logarithms of the deviations)."""
        chex.assert_equal_shape([self.mean, self.log_std])
        chex.assert_equal_shape([self.logits, self.mean[..., 0]])
        log_weight = jax.nn.log_softmax(self.logits.astype(jnp.float32), axis=-1)
        return log_weight, self.mean.astype(jnp.float32), self.log_std.astype(jnp.float32)


class GaussianMixtureHead(nn.Module):
    """Weights, means and deviations of all components from the features.

    The means begin at different places of the space: components that are alike would stay alike, since the
    likelihood has the same gradient for each.
    """

    space: Box
    components: int
    gain: float

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> GaussianMixture:
        size = self.space.shape[0]
        logits = Dense(self.components, self.gain, name="logits")(x)
        mean = Dense(self.components * size, self.gain, name="mean")(x)
        own_space = ActionScale.of(self.space).own_space
        center = self.param("center", _spread(own_space), (self.components * size,))
        std = jax.nn.softplus(Dense(self.components * size, self.gain, name="std")(x)) + LEAST_STD
        split = lambda y: y.reshape(*y.shape[:-1], self.components, size)  # noqa: E731
        mean = mean + jax.lax.broadcast_to_rank(center, mean.ndim)
        return GaussianMixture(logits, split(mean), split(jnp.log(std)))

    def describe(self) -> Layer:
        return {
            "type": "gaussian_mixture",
            "weights": weights_of(self),
            "components": self.components,
            "least_std": LEAST_STD,
            **ActionScale.of(self.space).describe(),
        }


def _spread(space: Box) -> nn.initializers.Initializer:
    """An initialiser of [K * D]: uniform over the space, at most 1 from its middle, 0 if there is none."""

    def middle_and_reach(low: float, high: float) -> tuple[float, float]:
        if not (low > -FARTHEST and high < FARTHEST):
            return 0.0, 1.0
        return (low + high) / 2, min((high - low) / 2, 1.0)

    found = [middle_and_reach(*sides) for sides in zip(space.low, space.high, strict=True)]
    middle, reach = (jnp.asarray(x, jnp.float32) for x in zip(*found, strict=True))

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        unit = jax.random.uniform(key, (shape[0] // len(found), len(found)), jnp.float32, -1.0, 1.0)
        return (middle[None] + reach[None] * unit).reshape(shape).astype(dtype)

    return init
