"""Action distributions: what a head returns, with randomness passed in; here of discrete and mixed actions.

Randomness enters as `noise`, sampled once per rollout (`draw_noise`) outside the scan over time: one large
sample is cheaper than T small ones, and the action becomes a pure function of policy and noise. Everything is
computed in float32, also from bfloat16 parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol

import chex
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Discrete, Mixed
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


def kl_divergence(p: Any, q: Any) -> Array:
    """float32[...]: KL(p || q) = E_p[log p(a) - log q(a)] in nats, of distributions of one class.

    It is exact, but of mixtures an upper bound (`GaussianMixture`). Actions that are masked in both add 0.
    """
    if type(p) is not type(q):
        raise TypeError(f"{type(p).__name__} and {type(q).__name__} have no divergence")
    if not hasattr(p, "divergence"):
        raise TypeError(f"{type(p).__name__} has no divergence")
    return p.divergence(q)


def elementwise(distribution: Any) -> Any:
    """The same distribution, with sums over few categories written out.

    A reduction is a separate kernel on a GPU; additions are part of the one around them.
    """
    if isinstance(distribution, Categorical):
        return dataclasses.replace(distribution, written_out=True)
    return distribution


def mask_logits(logits: Array, mask: Array | None) -> Array:
    """float32[..., A]: gives forbidden actions probability 0, with every value and gradient finite.

    Args:
      logits: float[..., A].
      mask: bool, broadcastable to `logits`; True if the action is allowed; None allows all. At least
        one action (of each component) must be allowed, else all of them become equally likely.
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
      written_out: True if sums over few categories are written out, see `elementwise`.
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
        weight = self._weights(logits)
        threshold = noise * self._over(jnp.add, jnp.sum, weight)
        num_categories = weight.shape[-1]
        if num_categories > _MAX_UNROLLED_CATEGORIES:
            weight_before = jnp.cumsum(weight, axis=-1) - weight
            candidate = (weight > 0) & (weight_before <= threshold[..., None])
            category = to_rank_of(candidate, jnp.arange(num_categories, dtype=jnp.int32))
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
        category = to_rank_of(self.logits, jnp.arange(self.logits.shape[-1], dtype=jnp.int32))
        chosen = action[..., None].astype(jnp.int32) == category
        return self._over(jnp.add, jnp.sum, jnp.where(chosen, self._log_probs(), 0.0))

    def entropy(self) -> Array:
        """float32[...]: -sum_i p_i log p_i; masked actions add exactly 0."""
        log_probs = self._log_probs()
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    def mode(self) -> Array:
        """int32[...]: the most probable action, the first of equals."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def divergence(self, other: Categorical) -> Array:
        """float32[...]: sum_i p_i (log p_i - log q_i)."""
        chex.assert_equal_shape([self.logits, other.logits])
        log_p, log_q = (jax.nn.log_softmax(x.logits.astype(jnp.float32), axis=-1) for x in (self, other))
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def _weights(self, logits: Array) -> Array:
        highest = self._over(jnp.maximum, jnp.max, logits)
        if not self.written_out or logits.shape[-1] > _MAX_UNROLLED_CATEGORIES:
            return jnp.exp(logits - highest[..., None])
        # Category by category: XLA computes the exponentials of all in a separate kernel.
        return jnp.stack([jnp.exp(logits[..., i] - highest) for i in range(logits.shape[-1])], axis=-1)

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

    `logits` are float[..., sum(nvec)], the components' one after the other; `nvec`, static, has the number of
    categories of each.
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

    def divergence(self, other: MultiCategorical) -> Array:
        ends = np.cumsum(self.nvec)[:-1].tolist()
        pairs = zip(*(jnp.split(x.logits, ends, axis=-1) for x in (self, other)), strict=True)
        return jnp.sum(jnp.stack([Categorical(p).divergence(Categorical(q)) for p, q in pairs]), axis=0)

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


def to_rank_of(x: Array, last: Array | np.ndarray) -> Array:
    """Adds leading dimensions of 1 to `last`, an array over the last dimensions of `x`."""
    return jax.lax.broadcast_to_rank(last, x.ndim)


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
    """Independent parts; actions are float32[..., n], the numbers of all parts (`jaxrl.envs.base.Mixed`)."""

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
        return jnp.sum(jnp.stack([part.entropy() for part in self.parts]), axis=0)

    def mode(self) -> Array:
        return self._join([part.mode() for part in self.parts])

    def divergence(self, other: ProductDistribution) -> Array:
        found = [kl_divergence(p, q) for p, q in zip(self.parts, other.parts, strict=True)]
        return jnp.sum(jnp.stack(found), axis=0)

    def _with(self, x: Array) -> Any:
        return zip(self.space.spaces, self.parts, self.space.split(x), strict=True)

    def _join(self, chosen: list[Array]) -> Array:
        parts = zip(self.space.spaces, chosen, strict=True)
        vectors = [x[..., None] if isinstance(space, Discrete) else x for (_, space), x in parts]
        return jnp.concatenate([x.astype(jnp.float32) for x in vectors], axis=-1)
