"""Policy heads: from features to a distribution over one action space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

from envs.base import Box, Discrete, MultiDiscrete, Space
from jaxrl import distributions
from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks.layers import DTYPES, dense
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
    to_env: Callable[[Array], Array]


def build_head(network: NetworkConfig, space: Space, env_name: str) -> Head:
    """Returns the head for an action space.

    Raises:
      ConfigError: no head serves the space.
    """
    dtype = DTYPES[network.compute_dtype]
    if isinstance(space, Discrete):
        return Head(CategoricalHead(space.n, dtype), "uniform", (), lambda action: action)
    if isinstance(space, MultiDiscrete):
        module = MultiCategoricalHead(space.nvec, dtype)
        return Head(module, "uniform", space.shape, lambda action: action)
    if isinstance(space, Box) and len(space.shape) == 1:
        return _continuous(network, space, env_name, dtype)
    raise ConfigError(
        f"`env.name` (={env_name!r}) has the action space {space}; "
        "a head serves Discrete, MultiDiscrete and one-dimensional Box"
    )


def _continuous(network: NetworkConfig, space: Box, env_name: str, dtype: jnp.dtype) -> Head:
    low, high = jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32)
    if not network.squash_actions:
        module = GaussianHead(space.shape[0], dtype)
        return Head(module, "normal", space.shape, lambda action: jnp.clip(action, low, high))
    if not space.bounded:
        raise ConfigError(
            f"`network.squash_actions` (=True) needs a bounded action space; {env_name!r} has {space}"
        )
    squashed = TanhGaussianHead(space.shape[0], dtype)
    return Head(squashed, "normal", space.shape, lambda u: distributions.squash(u, low, high))


class CategoricalHead(nn.Module):
    n: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.Categorical:
        return distributions.Categorical(_logits(x, self.n, self.dtype, mask))


class MultiCategoricalHead(nn.Module):
    nvec: tuple[int, ...]
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.MultiCategorical:
        return distributions.MultiCategorical(_logits(x, sum(self.nvec), self.dtype, mask), nvec=self.nvec)


class GaussianHead(nn.Module):
    """Mean from the features, one free log standard deviation per component."""

    size: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.Gaussian:
        return distributions.Gaussian(*_mean_and_log_std(self, x, self.size, self.dtype))


class TanhGaussianHead(nn.Module):
    size: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Array, mask: Array | None) -> distributions.TanhGaussian:
        return distributions.TanhGaussian(*_mean_and_log_std(self, x, self.size, self.dtype))


def _logits(x: Array, n: int, dtype: jnp.dtype, mask: Array | None) -> Array:
    logits = dense(n, 0.01, dtype, name="logits")(x).astype(jnp.float32)
    return logits if mask is None else distributions.mask_logits(logits, mask)


def _mean_and_log_std(module: nn.Module, x: Array, size: int, dtype: jnp.dtype) -> tuple[Array, Array]:
    mean = dense(size, 0.01, dtype, name="mean")(x).astype(jnp.float32)
    log_std = module.param("log_std", nn.initializers.zeros, (size,))
    return mean, jnp.broadcast_to(log_std, mean.shape)
