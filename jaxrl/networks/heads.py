"""Policy heads: from features to a distribution over one action space.

A factory takes `(network, space)` and returns a `Head`. Heads compute in float32 whatever the compute dtype:
rounded logits would leave few distinct probabilities, and the product is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

from envs.base import Box, Discrete, EnvSpec, MultiDiscrete, Space
from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks import distributions
from jaxrl.networks.layers import Dense
from jaxrl.networks.registry import Registry
from jaxrl.types import Array


@dataclass(frozen=True)
class Head:
    """A policy head and what the rollout must know about its actions.

    Attributes:
      module: linen module, (features [..., F], action_mask or None) -> distribution.
      noise_kind: "uniform" or "normal": what `distribution.sample` consumes.
      noise_shape: shape of that noise for one action.
      to_env: maps a stored action to what the environment accepts (clipping, squashing).
    """

    module: nn.Module
    noise_kind: distributions.NoiseKind
    noise_shape: tuple[int, ...]
    to_env: Callable[[Array], Array] = lambda action: action


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
    return _automatic(spec) if network.head == "auto" else network.head


class _Unsuitable(ValueError):
    """Says which spaces a head can serve."""


def _automatic(spec: EnvSpec) -> str:
    if isinstance(spec.action_space, Discrete):
        return "categorical"
    if isinstance(spec.action_space, MultiDiscrete):
        return "multi_categorical"
    if isinstance(spec.action_space, Box) and len(spec.action_space.shape) == 1:
        return "gaussian"
    raise ConfigError(
        f"`env.name` (={spec.name!r}) has the action space {spec.action_space}; "
        "heads serve Discrete, MultiDiscrete and one-dimensional Box"
    )


@HEADS.register("categorical")
def _categorical(network: NetworkConfig, space: Space) -> Head:
    if not isinstance(space, Discrete):
        raise _Unsuitable("a Discrete action space")
    return Head(CategoricalHead(space.n), "uniform", ())


@HEADS.register("multi_categorical")
def _multi_categorical(network: NetworkConfig, space: Space) -> Head:
    if not isinstance(space, MultiDiscrete):
        raise _Unsuitable("a MultiDiscrete action space")
    return Head(MultiCategoricalHead(space.nvec), "uniform", space.shape)


@HEADS.register("gaussian")
def _gaussian(network: NetworkConfig, space: Space) -> Head:
    """The environment gets the action clipped to its bounds; the density is of the unclipped action."""
    if not (isinstance(space, Box) and len(space.shape) == 1):
        raise _Unsuitable("a one-dimensional Box")
    low, high = jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32)
    module = GaussianHead(space.shape[0])
    return Head(module, "normal", space.shape, lambda action: distributions.clip(action, low, high))


@HEADS.register("tanh_gaussian")
def _tanh_gaussian(network: NetworkConfig, space: Space) -> Head:
    """Actions are squashed into the bounds by tanh."""
    if not (isinstance(space, Box) and len(space.shape) == 1 and space.bounded):
        raise _Unsuitable("a one-dimensional Box with finite bounds")
    low, high = jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32)
    module = TanhGaussianHead(space.shape[0])
    return Head(module, "normal", space.shape, lambda u: distributions.squash(u, low, high))


class CategoricalHead(nn.Module):
    n: int

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.Categorical:
        return distributions.Categorical(_logits(x, self.n, mask))


class MultiCategoricalHead(nn.Module):
    nvec: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.MultiCategorical:
        return distributions.MultiCategorical(_logits(x, sum(self.nvec), mask), nvec=self.nvec)


class GaussianHead(nn.Module):
    """Mean from the features, one free log standard deviation per component."""

    size: int

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.Gaussian:
        return distributions.Gaussian(*_mean_and_log_std(self, x, self.size))


class TanhGaussianHead(nn.Module):
    size: int

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.TanhGaussian:
        return distributions.TanhGaussian(*_mean_and_log_std(self, x, self.size))


def _logits(x: Array, n: int, mask: Array | None) -> Array:
    logits = Dense(n, 0.01, name="logits")(x)
    return logits if mask is None else distributions.mask_logits(logits, mask)


def _mean_and_log_std(module: nn.Module, x: Array, size: int) -> tuple[Array, Array]:
    mean = Dense(size, 0.01, name="mean")(x)
    log_std = module.param("log_std", nn.initializers.zeros, (size,))
    return mean, jnp.broadcast_to(log_std, mean.shape)
