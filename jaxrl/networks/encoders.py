"""Encoders: from an observation to a feature vector.

A factory takes `(network, space)` and returns a linen module that maps an observation
[..., *O] of any number of leading dimensions to features [..., F].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.base import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks.graphs import GraphEncoder, is_graph, require_graph
from jaxrl.networks.kernels.convolution import max_pool
from jaxrl.networks.layers import DTYPES, Conv, Dense, activation
from jaxrl.networks.registry import Registry
from jaxrl.types import Array, PyTree

EncoderFactory = Callable[[NetworkConfig, Space], nn.Module]
ENCODERS: Registry[EncoderFactory] = Registry("network.encoder", ("network", "space"), nn.Module)
# (features, kernel, stride) of each convolution.
CONVOLUTIONS = {"minatar": ((16, 3, 1),), "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1))}
IMPALA_CHANNELS = (16, 32, 32)


def build_encoder(network: NetworkConfig, space: Space) -> nn.Module:
    """Returns the encoder for `space`; for a dict one per key, their features concatenated.

    `network.encoder` is one name for every key, or `key=name,key=name`; "auto" chooses by the space.
    """
    names = encoder_names(network.encoder, space)
    if "" in names:
        return ENCODERS.get(names[""])(network, space)
    assert isinstance(space, Dict)
    return DictEncoder(tuple((key, ENCODERS.get(names[key])(network, part)) for key, part in space.spaces))


def encoder_names(names: str, space: Space) -> dict[str, str]:
    """The encoder of each key of a dict, or of `""` for any other space and a graph; "auto" is resolved.

    Raises:
      ConfigError: `names` says `key=name`, but not for each key.
    """
    if not isinstance(space, Dict) or is_graph(space):
        return {"": _resolved(names, space)}
    chosen = _names_by_key(names, space)
    return {key: _resolved(chosen[key], part) for key, part in space.spaces}


def _names_by_key(names: str, space: Dict) -> dict[str, str]:
    keys = [key for key, _ in space.spaces]
    if "=" not in names:
        return dict.fromkeys(keys, names)
    chosen = dict(item.split("=", 1) for item in names.split(","))
    if sorted(chosen) != sorted(keys):
        raise ConfigError(f"`network.encoder` (={names!r}) must name each observation key: {', '.join(keys)}")
    return chosen


def _resolved(name: str, space: Space) -> str:
    if name != "auto":
        return name
    if is_graph(space):
        return "graph"
    if isinstance(space, Box) and len(space.shape) == 3:
        # The Nature stack of strides 4, 2, 1 needs at least 36 pixels a side.
        return "nature" if min(space.shape[:2]) >= 36 else "minatar"
    return "mlp"


class DictEncoder(nn.Module):
    """One encoder per key; features are concatenated in the order of the keys."""

    encoders: tuple[tuple[str, nn.Module], ...]

    @nn.compact
    def __call__(self, obs: dict[str, Array]) -> Array:
        return jnp.concatenate([encoder(obs[key]) for key, encoder in self.encoders], axis=-1)


class Identity(nn.Module):
    """The observation itself, flattened to a float vector."""

    space: Space
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, obs: PyTree) -> Array:
        return as_vector(obs, self.space, self.dtype)


class MLP(nn.Module):
    """Dense layers over the flattened observation (one-hot where it is discrete)."""

    space: Space
    hidden_sizes: tuple[int, ...]
    activation: str
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = as_vector(obs, self.space, self.dtype)
        return _dense_stack(x, self.hidden_sizes, self.activation, self.dtype)


class ConvEncoder(nn.Module):
    """Convolutions `(features, kernel, stride)`, relu, then dense layers."""

    layers: tuple[tuple[int, int, int], ...]
    hidden_sizes: tuple[int, ...]
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = as_image(obs, self.dtype)
        for features, kernel, stride in self.layers:
            x = jax.nn.relu(Conv(features, kernel, stride, dtype=self.dtype)(x))
        x = x.reshape(*x.shape[:-3], -1)
        return _dense_stack(x, self.hidden_sizes, "relu", self.dtype)


class Impala(nn.Module):
    """The residual network of Espeholt et al. 2018, "IMPALA", figure 3 (right)."""

    hidden_sizes: tuple[int, ...]
    dtype: jnp.dtype
    channels: tuple[int, ...] = IMPALA_CHANNELS

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = as_image(obs, self.dtype)
        for features in self.channels:
            x = max_pool(Conv(features, 3, padding="SAME", dtype=self.dtype)(x), window=3, stride=2)
            for _ in range(2):
                y = Conv(features, 3, padding="SAME", dtype=self.dtype)(jax.nn.relu(x))
                x = x + Conv(features, 3, padding="SAME", dtype=self.dtype)(jax.nn.relu(y))
        x = jax.nn.relu(x).reshape(*x.shape[:-3], -1)
        return _dense_stack(x, self.hidden_sizes, "relu", self.dtype)


def as_image(obs: Array, dtype: jnp.dtype) -> Array:
    """Scales bytes to [0, 1]; other dtypes (MinAtar's booleans) are only converted."""
    return obs.astype(dtype) / 255 if obs.dtype == jnp.uint8 else obs.astype(dtype)


def as_vector(obs: Array, space: Space, dtype: jnp.dtype) -> Array:
    """[..., *O] to [..., F]: one-hot for discrete spaces, flattened for boxes."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n, dtype=dtype)
    if isinstance(space, MultiDiscrete):
        parts = [jax.nn.one_hot(obs[..., i], n, dtype=dtype) for i, n in enumerate(space.nvec)]
        return jnp.concatenate(parts, axis=-1)
    assert isinstance(space, Box)
    leading = obs.shape[: obs.ndim - len(space.shape)]
    return as_image(obs, dtype).reshape(*leading, -1)


def _dense_stack(x: Array, sizes: tuple[int, ...], name: str, dtype: jnp.dtype) -> Array:
    for size in sizes:
        x = activation(name)(Dense(size, math.sqrt(2), dtype)(x))
    return x


def _need_array(name: str, space: Space) -> None:
    if isinstance(space, Dict):
        keys = ", ".join(key for key, _ in space.spaces)
        raise ConfigError(f"`network.encoder` (={name!r}) takes one array, not the dict of {keys}")


def _need_image(name: str, space: Space) -> None:
    if not (isinstance(space, Box) and len(space.shape) == 3):
        found = f"shape {space.shape}" if isinstance(space, Box) else type(space).__name__
        raise ConfigError(
            f"`network.encoder` (={name!r}) needs an observation of [height, width, channels], not {found}"
        )


@ENCODERS.register("identity")
def _identity(network: NetworkConfig, space: Space) -> nn.Module:
    _need_array("identity", space)
    return Identity(space, DTYPES[network.compute_dtype])


@ENCODERS.register("mlp")
def _mlp(network: NetworkConfig, space: Space) -> nn.Module:
    _need_array("mlp", space)
    activation(network.activation)  # fail before anything is traced
    return MLP(space, network.hidden_sizes, network.activation, DTYPES[network.compute_dtype])


@ENCODERS.register("minatar")
def _minatar(network: NetworkConfig, space: Space) -> nn.Module:
    """One 3x3 convolution of 16 channels: Young and Tian 2019, "MinAtar"."""
    _need_image("minatar", space)
    return ConvEncoder(CONVOLUTIONS["minatar"], network.hidden_sizes, DTYPES[network.compute_dtype])


@ENCODERS.register("nature")
def _nature(network: NetworkConfig, space: Space) -> nn.Module:
    """The three convolutions of Mnih et al. 2015, "Human-level control"."""
    _need_image("nature", space)
    return ConvEncoder(CONVOLUTIONS["nature"], network.hidden_sizes, DTYPES[network.compute_dtype])


@ENCODERS.register("impala")
def _impala(network: NetworkConfig, space: Space) -> nn.Module:
    _need_image("impala", space)
    return Impala(network.hidden_sizes, DTYPES[network.compute_dtype])


@ENCODERS.register("graph")
def _graph(network: NetworkConfig, space: Space) -> nn.Module:
    require_graph(space)
    return GraphEncoder(network.hidden_sizes, network.activation, DTYPES[network.compute_dtype])
