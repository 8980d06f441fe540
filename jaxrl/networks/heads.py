"""Policy heads: from features to a distribution over one action space.

A factory takes `(network, space)` and returns a `Head`. Heads compute in float32 whatever the compute dtype:
rounded logits would leave few distinct probabilities, and the product is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.base import Box, Discrete, EnvSpec, Mixed, MultiDiscrete, Space
from jaxrl.networks import distributions, gaussians
from jaxrl.networks.dense import LinearHead
from jaxrl.networks.gaussian_mixture import GaussianMixtureHead
from jaxrl.networks.gaussians import ActionScale, is_vector_of_floats
from jaxrl.networks.layers import Dense, linear, weights_of
from jaxrl.networks.operations import Layer, bounds_of
from jaxrl.networks.registry import Registry
from jaxrl.types import Array

_LOG_STD = (-5.0, 2.0)  # of `SoftActorHead`


@dataclass(frozen=True)
class Head:
    """A policy head and what the rollout must know about its actions.

    Attributes:
      module: linen module, (features [..., F], action_mask or None) -> distribution. If exports beside
        StableHLO know it, it has a method `describe()`: its `type` and the prefix of its `weights`, as JSON
        values.
      noise_kind: "uniform" or "normal": what `distribution.sample` consumes.
      noise_shape: shape of that noise for one action.
      to_env: maps a stored action to what the environment accepts.
      from_env: the stored action of what an environment took, for learning from demonstrations; an inverse of
        `to_env`, up to the bounds.
      unit: 1 of the numbers that densities are of, in the environment's; of each component.
    """

    module: nn.Module
    noise_kind: distributions.NoiseKind
    noise_shape: tuple[int, ...]
    to_env: Callable[[Array], Array] = lambda action: action
    from_env: Callable[[Array], Array] = lambda action: action
    unit: float | tuple[float, ...] = 1.0


HEADS: Registry[Callable[[NetworkConfig, Space], Head]] = Registry("network.head", ("network", "space"), Head)


def build_head(network: NetworkConfig, spec: EnvSpec) -> Head:
    """Returns the head that `network.head` names; "auto" chooses by the action space.

    Raises:
      ConfigError: the name is unknown, or the head cannot serve the space.
    """
    name = head_name(network, spec)
    try:
        return HEADS.get(name)(network, spec.action_space)
    except _Unsuitable as error:
        raise ConfigError(
            f"`network.head` (={name!r}) needs {error}; the actions of {spec.name!r} are {spec.action_space}"
        ) from error


def head_name(network: NetworkConfig, spec: EnvSpec) -> str:
    """The head that `network.head` names, "auto" resolved by the action space."""
    if network.head != "auto":
        return network.head
    if isinstance(spec.action_space, Discrete):
        return "categorical"
    if isinstance(spec.action_space, MultiDiscrete):
        return "multi_categorical"
    if is_vector_of_floats(spec.action_space):
        return "gaussian"
    if isinstance(spec.action_space, Mixed):
        return "mixed"
    raise ConfigError(
        f"`env.name` (={spec.name!r}) has the action space {spec.action_space}; heads serve "
        "Discrete, MultiDiscrete, one-dimensional Box of floats, and a Dict or Tuple of such parts; "
        "declare a Box of integers as MultiDiscrete"
    )


class _Unsuitable(ValueError):
    """Says which spaces a head can serve."""


@HEADS.register("categorical")
def _categorical(network: NetworkConfig, space: Space) -> Head:
    if not isinstance(space, Discrete):
        raise _Unsuitable("a Discrete action space")
    return Head(CategoricalHead(space.n, network.policy_gain), "uniform", ())


@HEADS.register("multi_categorical")
def _multi_categorical(network: NetworkConfig, space: Space) -> Head:
    if not isinstance(space, MultiDiscrete):
        raise _Unsuitable("a MultiDiscrete action space")
    return Head(MultiCategoricalHead(space.nvec, network.policy_gain), "uniform", space.shape)


@HEADS.register("gaussian")
def _gaussian(network: NetworkConfig, space: Space) -> Head:
    return _scaled(space, lambda box: GaussianHead(box, network.policy_gain, network.policy_std))


def _scaled(space: Space, module: Callable[[Box], nn.Module], more_noise: int = 0) -> Head:
    """The environment gets the action scaled, if need be, and clipped to its bounds.

    The density is of the action before both.
    """
    if not is_vector_of_floats(space):
        raise _Unsuitable("a one-dimensional Box of floats")
    scale = ActionScale.of(space)
    noise = (space.shape[0] + more_noise,)
    return Head(module(space), "normal", noise, scale.to_env, scale.from_env, scale.half_width)


@HEADS.register("tanh_gaussian")
def _tanh_gaussian(network: NetworkConfig, space: Space) -> Head:
    """Actions are squashed into the bounds by tanh."""
    if not is_vector_of_floats(space) or not space.bounded:
        raise _Unsuitable("a one-dimensional Box of floats with bounds below 2^24")
    low = jnp.asarray(space.low, jnp.float32)
    high = jnp.asarray(space.high, jnp.float32)
    module = TanhGaussianHead(space, network.policy_gain, network.policy_std)
    return Head(
        module,
        "normal",
        space.shape,
        to_env=lambda u: gaussians.squash(u, low, high),
        from_env=lambda action: gaussians.unsquash(action, low, high),
        unit=tuple((high - low) / 2 for low, high in zip(space.low, space.high, strict=True)),
    )


@HEADS.register("gaussian_mixture")
def _gaussian_mixture(network: NetworkConfig, space: Space) -> Head:
    """One more number of noise picks the component."""
    components, gain = network.mixture_components, network.policy_gain
    return _scaled(space, lambda box: GaussianMixtureHead(box, components, gain), more_noise=1)


@HEADS.register("mixed")
def _mixed(network: NetworkConfig, space: Space) -> Head:
    """A categorical or Gaussian for each part; the environment gets the latter scaled and clipped."""
    if not isinstance(space, Mixed):
        raise _Unsuitable("a Dict or Tuple of Discrete, MultiDiscrete and Box actions")
    scales = [ActionScale.of(part) if isinstance(part, Box) else None for _, part in space.spaces]

    def joined(method: str, action: Array) -> Array:
        parts = zip(scales, space.split(action), strict=True)
        return jnp.concatenate([getattr(scale, method)(x) if scale else x for scale, x in parts], axis=-1)

    units = [
        unit
        for scale, size in zip(scales, space.sizes, strict=True)
        for unit in ((1.0,) * size if scale is None else scale.half_width)
    ]
    module = MixedHead(space, network.policy_gain, network.policy_std)
    to_env, from_env = partial(joined, "to_env"), partial(joined, "from_env")
    return Head(module, "normal", space.shape, to_env, from_env, tuple(units))


class CategoricalHead(LinearHead):
    n: int
    gain: float
    layer: ClassVar[str] = "logits"

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.Categorical:
        return self.finish(Dense(self.n, self.gain, name="logits")(x), mask)

    def finish(self, y: Array, mask: Array | None) -> distributions.Categorical:
        return distributions.Categorical(distributions.mask_logits(y, mask))

    def describe(self) -> Layer:
        return {"type": "categorical", "weights": weights_of(self)}


class MultiCategoricalHead(LinearHead):
    nvec: tuple[int, ...]
    gain: float
    layer: ClassVar[str] = "logits"

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.MultiCategorical:
        return self.finish(Dense(sum(self.nvec), self.gain, name="logits")(x), mask)

    def finish(self, y: Array, mask: Array | None) -> distributions.MultiCategorical:
        return distributions.MultiCategorical(distributions.mask_logits(y, mask), nvec=self.nvec)

    def describe(self) -> Layer:
        return {"type": "multi_categorical", "weights": weights_of(self), "nvec": list(self.nvec)}


class GaussianHead(LinearHead):
    """Mean from the features, one free log standard deviation per component."""

    space: Box
    gain: float
    std: float
    layer: ClassVar[str] = "mean"

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> gaussians.Gaussian:
        return gaussians.Gaussian(*_mean_and_log_std(self, x, self.space.shape[0], self.gain, self.std))

    def finish(self, y: Array, mask: Array | None) -> gaussians.Gaussian:
        return gaussians.Gaussian(y, jnp.broadcast_to(self.get_variable("params", "log_std"), y.shape))

    def describe(self) -> Layer:
        return {"type": "gaussian", "weights": weights_of(self), **ActionScale.of(self.space).describe()}


class TanhGaussianHead(nn.Module):
    space: Box
    gain: float
    std: float

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> gaussians.TanhGaussian:
        return gaussians.TanhGaussian(*_mean_and_log_std(self, x, self.space.shape[0], self.gain, self.std))

    def describe(self) -> Layer:
        return {"type": "tanh_gaussian", "weights": weights_of(self), **bounds_of(self.space)}


class SoftActorHead(nn.Module):
    """A Gaussian squashed by tanh whose standard deviation depends on the features as well.

    Its logarithm is squashed between two bounds: without any, a policy that is sure of itself has none left.
    """

    size: int

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> gaussians.TanhGaussian:
        mean = Dense(self.size, 0.01, name="mean")(x)
        share = 0.5 * (jnp.tanh(Dense(self.size, 0.01, name="log_std")(x)) + 1.0)
        low, high = _LOG_STD
        return gaussians.TanhGaussian(mean, low + share * (high - low))


class MixedHead(nn.Module):
    """A head for each part of an action, named by its position."""

    space: Mixed
    gain: float
    std: float

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.ProductDistribution:
        parts: list[nn.Module] = []
        for i, (_, part) in enumerate(self.space.spaces):
            if isinstance(part, Discrete):
                parts.append(CategoricalHead(part.n, self.gain, name=f"part_{i}"))
            elif isinstance(part, MultiDiscrete):
                parts.append(MultiCategoricalHead(part.nvec, self.gain, name=f"part_{i}"))
            else:
                flat = Box(part.low, part.high, (len(part.low),))
                parts.append(GaussianHead(flat, self.gain, self.std, name=f"part_{i}"))
        return distributions.ProductDistribution(tuple(part(x, None) for part in parts), self.space)


class ValueHead(LinearHead):
    """float32[...], the value of a state."""

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> Array:
        return self.finish(linear(self, x, 1, 1.0), mask)

    def finish(self, y: Array, mask: Array | None) -> Array:
        return y[..., 0]

    def describe(self) -> Layer:
        return {"weights": weights_of(self)}


class FeaturesHead(nn.Module):
    """The features themselves, for what takes something else beside them."""

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> Array:
        return x


class QHead(nn.Module):
    """float32[..., n]: the value of each action, of `copies` > 1 independent heads float32[..., copies, n].

    With `dueling` V + A - mean A (Wang et al. 2016, eq. 9). Masked actions have the value of masked logits.
    """

    n: int
    dueling: bool = False
    copies: int = 1

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> Array:
        q = Dense(self.copies * self.n, 1.0, name="advantage" if self.dueling else "q")(x)
        q = q.reshape(*x.shape[:-1], self.copies, self.n)
        if self.dueling:
            value = Dense(self.copies, 1.0, name="value")(x)
            q = value[..., None] + q - q.mean(axis=-1, keepdims=True)
        q = q[..., 0, :] if self.copies == 1 else q
        if mask is None:
            return q
        return distributions.mask_logits(q, mask if self.copies == 1 else mask[..., None, :])

    def describe(self) -> Layer | None:
        if self.copies > 1:
            return None
        return {"type": "dueling_q" if self.dueling else "q", "weights": weights_of(self)}


def _mean_and_log_std(module: nn.Module, x: Array, size: int, gain: float, std: float) -> tuple[Array, Array]:
    mean = Dense(size, gain, name="mean")(x)
    log_std = module.param("log_std", nn.initializers.constant(math.log(std)), (size,))
    return mean, jnp.broadcast_to(log_std, mean.shape)
