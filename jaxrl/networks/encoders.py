"""Encoders: from an observation to a feature vector.

A factory takes `(network, space)` and returns a linen module that maps an observation
[..., *O] of any number of leading dimensions to features [..., F].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace
from jaxrl.envs.pictures import picture_shape
from jaxrl.networks.graphs import GraphEncoder, is_graph, require_graph
from jaxrl.networks.layers import DTYPES, Conv, Dense, LayerNorm, activation
from jaxrl.networks.operations import (
    Activation,
    ArrayOperation,
    ChannelsLast,
    Flatten,
    Image,
    Layer,
    MaxPool,
    Residual,
    Vector,
    describe,
    description_of,
    run,
)
from jaxrl.networks.registry import Registry
from jaxrl.types import Array

EncoderFactory = Callable[[NetworkConfig, Space], nn.Module]
ENCODERS: Registry[EncoderFactory] = Registry("network.encoder", ("network", "space"), nn.Module)
# (features, kernel, stride) of each convolution: of Young and Tian 2019, "MinAtar", and of Mnih et al. 2015,
# "Human-level control".
CONVOLUTIONS = {"minatar": ((16, 3, 1),), "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1))}
_JOINT = "joint"  # of all parts of a dict, and not of each
# The Nature stack of strides 4, 2, 1 needs at least this many pixels a side.
NATURE_PIXELS = 36


def build_encoder(network: NetworkConfig, space: Space) -> nn.Module:
    """Returns the encoder for `space`; for a dict one per key, their features concatenated, or "joint".

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
    if not isinstance(space, Dict) or is_graph(space) or names == _JOINT:
        return {"": _resolve(names, space)}
    keys = [key for key, _ in space.spaces]
    chosen = dict.fromkeys(keys, names)
    if "=" in names:
        chosen = dict(item.split("=", 1) for item in names.split(","))
    if sorted(chosen) != sorted(keys):
        raise ConfigError(f"`network.encoder` (={names!r}) must name each observation key: {', '.join(keys)}")
    return {key: _resolve(chosen[key], part) for key, part in space.spaces}


def _resolve(name: str, space: Space) -> str:
    if name != "auto":
        return name
    if is_graph(space):
        return "graph"
    if isinstance(space, Box) and (picture := picture_shape(space.shape)):
        return "nature" if min(picture[:2]) >= NATURE_PIXELS else "minatar"
    return "mlp"


class DictEncoder(nn.Module):
    """One encoder per key; features are concatenated in the order of the keys."""

    encoders: tuple[tuple[str, nn.Module], ...]

    @nn.compact
    def __call__(self, obs: dict[str, Array]) -> Array:
        return jnp.concatenate([encoder(obs[key]) for key, encoder in self.encoders], axis=-1)

    def describe(self, name: str) -> list[Layer] | None:
        """The descriptions of all encoders; see `ArrayEncoder.describe`."""
        found = [description_of(encoder, f"{name}.{key}") for key, encoder in self.encoders]
        return None if None in found else [layers for parts in found for layers in parts]


class ArrayEncoder(nn.Module):
    """An encoder of one array that is a list of operations."""

    def operations(self) -> Sequence[ArrayOperation]:
        """Builds the operations; a compact method."""
        raise NotImplementedError

    def __call__(self, obs: Array) -> Array:
        return run(self.operations(), obs)

    def describe(self, name: str) -> list[Layer] | None:
        """The operations on the part `name` of an observation, such as `obs` or `obs.key`."""
        return [{"input": name, "layers": describe(self.operations())}]


class Identity(ArrayEncoder):
    """The observation itself, flattened to a float vector."""

    space: Space
    dtype: jnp.dtype

    @nn.compact
    def operations(self) -> Sequence[ArrayOperation]:
        return [Vector(self.space, self.dtype)]


class MLP(ArrayEncoder):
    """Dense layers over the flattened observation (one-hot if it is discrete)."""

    space: Space
    hidden_sizes: tuple[int, ...]
    activation: str
    dtype: jnp.dtype
    layer_norm: bool = False

    @nn.compact
    def operations(self) -> Sequence[ArrayOperation]:
        dense = dense_stack(self.hidden_sizes, self.activation, self.dtype, self.layer_norm)
        return [Vector(self.space, self.dtype), *dense]


class JointMLP(nn.Module):
    """Dense layers over all parts of a dict, flattened and concatenated in the order of the keys.

    Encoders of each part followed by a linear head are a sum of functions of the parts: a goal and where one
    is would not meet.
    """

    spaces: tuple[tuple[str, Space], ...]
    hidden_sizes: tuple[int, ...]
    activation: str
    dtype: jnp.dtype
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: dict[str, Array]) -> Array:
        parts = [Vector(space, self.dtype)(obs[key]) for key, space in self.spaces]
        dense = dense_stack(self.hidden_sizes, self.activation, self.dtype, self.layer_norm)
        return run(list(dense), jnp.concatenate(parts, axis=-1))


class ConvEncoder(ArrayEncoder):
    """Convolutions `(features, kernel, stride)`, relu, then dense layers."""

    space: Space
    layers: tuple[tuple[int, int, int], ...]
    hidden_sizes: tuple[int, ...]
    dtype: jnp.dtype
    layer_norm: bool = False

    @nn.compact
    def operations(self) -> Sequence[ArrayOperation]:
        found: list[ArrayOperation] = [ChannelsLast(self.space), Image(self.space, self.dtype)]
        for features, kernel, stride in self.layers:
            found.append(Conv(features, kernel, stride, dtype=self.dtype))
            if self.layer_norm:
                found.append(LayerNorm(self.dtype, axes=3))
            found.append(Activation("relu"))
        return [*found, Flatten(3), *dense_stack(self.hidden_sizes, "relu", self.dtype, self.layer_norm)]


class Impala(ArrayEncoder):
    """The residual network of Espeholt et al. 2018, "IMPALA", figure 3 (right)."""

    space: Space
    hidden_sizes: tuple[int, ...]
    dtype: jnp.dtype
    layer_norm: bool = False
    channels: tuple[int, ...] = (16, 32, 32)

    @nn.compact
    def operations(self) -> Sequence[ArrayOperation]:
        relu = Activation("relu")
        found: list[ArrayOperation] = [ChannelsLast(self.space), Image(self.space, self.dtype)]
        for features in self.channels:
            first, *convs = (Conv(features, 3, padding="SAME", dtype=self.dtype) for _ in range(5))
            found += [first, MaxPool(window=3, stride=2)]
            found += [Residual((relu, a, relu, b)) for a, b in (convs[:2], convs[2:])]
        dense = dense_stack(self.hidden_sizes, "relu", self.dtype, self.layer_norm)
        return [*found, relu, Flatten(3), *dense]


def dense_stack(
    sizes: tuple[int, ...], name: str, dtype: jnp.dtype, layer_norm: bool = False
) -> Iterator[ArrayOperation]:
    for size in sizes:
        yield Dense(size, math.sqrt(2), dtype)
        if layer_norm:
            yield LayerNorm(dtype)
        yield Activation(name)


def _need_array(name: str, space: Space) -> None:
    if isinstance(space, Dict):
        keys = ", ".join(key for key, _ in space.spaces)
        raise ConfigError(f"`network.encoder` (={name!r}) takes one array, not the dict of {keys}")


def _need_image(name: str, space: Space) -> tuple[int, ...]:
    """(height, width, channels)."""
    if isinstance(space, Box) and (picture := picture_shape(space.shape)):
        return picture
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
    return MLP(
        space, network.hidden_sizes, network.activation, DTYPES[network.compute_dtype], network.layer_norm
    )


@ENCODERS.register(_JOINT)
def _joint(network: NetworkConfig, space: Space) -> nn.Module:
    if not isinstance(space, Dict) or any(isinstance(part, Dict) for _, part in space.spaces):
        raise ConfigError(
            f"`network.encoder` (='joint') takes a dict of arrays, not {type(space).__name__}: use 'mlp'"
        )
    activation(network.activation)
    dtype = DTYPES[network.compute_dtype]
    return JointMLP(space.spaces, network.hidden_sizes, network.activation, dtype, network.layer_norm)


def _convolutional(name: str, network: NetworkConfig, space: Space) -> nn.Module:
    picture = _need_image(name, space)
    if name == "nature" and min(picture[:2]) < NATURE_PIXELS:
        shape = space.shape  # type: ignore[union-attr]
        raise ConfigError(
            f"`network.encoder` (='nature') needs at least {NATURE_PIXELS} pixels a side, not {shape}"
        )
    dtype = DTYPES[network.compute_dtype]
    return ConvEncoder(space, CONVOLUTIONS[name], network.hidden_sizes, dtype, network.layer_norm)


for _name in CONVOLUTIONS:
    ENCODERS.register(_name)(partial(_convolutional, _name))


@ENCODERS.register("impala")
def _impala(network: NetworkConfig, space: Space) -> nn.Module:
    _need_image("impala", space)
    return Impala(space, network.hidden_sizes, DTYPES[network.compute_dtype], network.layer_norm)


@ENCODERS.register("graph")
def _graph(network: NetworkConfig, space: Space) -> nn.Module:
    require_graph(space)
    if network.layer_norm:
        raise ConfigError("`network.layer_norm` (=True) is not offered by the encoder graph")
    graphs = space.graphs if isinstance(space, GraphSpace) else None
    return GraphEncoder(network.hidden_sizes, network.activation, DTYPES[network.compute_dtype], graphs)
