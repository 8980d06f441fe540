"""The encoder of an architecture, from its record, the configuration and the observation."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.config.errors import did_you_mean, errors_as
from jaxrl.envs import modules
from jaxrl.envs.base import Box, Space
from jaxrl.envs.pictures import picture_shape
from jaxrl.networks.architectures.records import ARCHITECTURES, Architecture, Part, parts_of
from jaxrl.networks.encoders import CONVOLUTIONS, MLP, NATURE_PIXELS, ConvEncoder, Impala, JointMLP
from jaxrl.networks.graph.encoder import LEVEL_ENCODERS, PackedGraphs
from jaxrl.networks.layers import DTYPES, Dense, activation
from jaxrl.types import Array

_FIELD = "network.architecture"
# Fields of both a record and the configuration; `graph` and `convolution` are of the record alone.
_SIZES = [f.name for f in dataclasses.fields(Architecture) if f.name in NetworkConfig.__dataclass_fields__]
_AS_NAMED = (None, (), "")  # values of fields that change nothing
_HEADS = 4  # of attention between parts, if they divide the size


class PartsEncoder(nn.Module):
    """An encoder for each part of an observation that an architecture sees, and their fusion.

    Attributes:
      encoders: with the key of what each encodes; "" for the whole observation.
    """

    encoders: tuple[tuple[str, nn.Module], ...]
    fusion: nn.Module

    @nn.compact
    def __call__(self, obs: Any) -> Array:
        return self.fusion([encoder(obs[key] if key else obs) for key, encoder in self.encoders])


def resolve_architecture(network: NetworkConfig) -> Architecture:
    """The record that `network.architecture` names, with what `network` says otherwise.

    Raises:
      ConfigError: no architecture has that name, or sizes do not fit together.
    """
    found = _lookup(network.architecture)
    if not isinstance(found, Architecture):
        raise ConfigError(f"`{_FIELD}` (={network.architecture!r}) is no record of sizes, so there are none")
    given = {name: x for name in _SIZES if (x := getattr(network, name)) not in _AS_NAMED}
    record = dataclasses.replace(found, **given)
    if "graph" in record.sees and record.graph != "gcn" and record.graph_width % record.graph_heads:
        raise ConfigError(
            f"`network.graph_heads` (={record.graph_heads}) must divide `network.graph_width` "
            f"(={record.graph_width})"
        )
    if record.fusion_size == 0 and record.fusion != "concatenate":
        raise ConfigError(f"`network.fusion_size` (=0) needs the fusion concatenate, not {record.fusion}")
    return record


def require_architecture(network: NetworkConfig) -> None:
    """Raises ConfigError if fields of `network` are for architectures, and there is none."""
    given = [name for name in _SIZES if getattr(network, name) not in _AS_NAMED]
    if given and not network.architecture:
        raise ConfigError(
            f"`network.{given[0]}` (={getattr(network, given[0])!r}) changes an architecture: name one with "
            f"`{_FIELD}` ({', '.join(ARCHITECTURES)})"
        )


def build_architecture(network: NetworkConfig, space: Space) -> nn.Module:
    """The encoder of `network.architecture` for observations of a space.

    Raises:
      ConfigError: there is no such architecture, or the observation has none of what it sees.
    """
    found = _lookup(network.architecture)
    if not isinstance(found, Architecture):
        return _own(network, found, space)
    if network.layer_norm:
        raise ConfigError(
            f"`network.layer_norm` (=True) is not offered by `{_FIELD}` (={network.architecture!r})"
        )
    record = resolve_architecture(network)
    activation(network.activation)
    parts = _parts_seen(network.architecture, record, space)
    dtype = DTYPES[network.compute_dtype]
    state = [part for part in parts if part.modality == "state"]
    encoders: list[tuple[str, nn.Module]] = []
    if len(state) > 1:
        # One network over all of them: a layer for each would only add them up.
        whole = tuple((part.key, part.space) for part in state)
        encoders.append(("", JointMLP(whole, record.state_sizes, network.activation, dtype)))
        parts = [part for part in parts if part.modality != "state"]
    encoders += [(part.key, _encoder(record, part, network.activation, dtype)) for part in parts]
    return PartsEncoder(
        tuple(encoders), FUSIONS[record.fusion](record.fusion_size, network.activation, dtype)
    )


def describe_architecture(network: NetworkConfig) -> str:
    """An architecture in words: `gat (state, graph)`."""
    found = _lookup(network.architecture)
    if not isinstance(found, Architecture):
        return network.architecture
    return f"{network.architecture} ({', '.join(resolve_architecture(network).sees)})"


def _lookup(name: str) -> Any:
    """A record, or a custom one under `module:attribute`."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    given = f"`{_FIELD}` (={name!r})"
    if ":" not in name:
        hint = did_you_mean(name, ARCHITECTURES)
        raise ConfigError(f"{given} is no architecture, nor module:attribute{hint}")
    path, _, attribute = name.partition(":")
    with errors_as(ConfigError, f"{given} cannot be imported", ImportError, AttributeError, ValueError):
        found = getattr(modules.load(path), attribute)
    is_module = inspect.isclass(found) and issubclass(found, nn.Module)
    if not (is_module or isinstance(found, Architecture)):
        raise ConfigError(f"{given} must be an Architecture, or a flax module of (network, space)")
    return found


def _own(network: NetworkConfig, made: type[nn.Module], space: Space) -> nn.Module:
    try:
        return made(network=network, space=space)
    except ConfigError:
        raise
    except Exception as error:
        given = f"`{_FIELD}` (={network.architecture!r})"
        raise ConfigError(f"{given} raised {modules.one_line(error)}") from error


def _parts_seen(name: str, record: Architecture, space: Space) -> list[Part]:
    """The parts of an observation that an architecture sees, in the order of `sees`."""
    parts = parts_of(space)
    there = list(dict.fromkeys(part.modality for part in parts))
    missing = [modality for modality in record.sees if modality not in there]
    if missing:
        raise ConfigError(
            f"`{_FIELD}` (={name!r}) sees {', '.join(record.sees)}; the observation has "
            f"{', '.join(there) or 'none of these'}: ask the environment for {', '.join(missing)}, or leave "
            "that out with `network.sees`"
        )
    return [part for modality in record.sees for part in parts if part.modality == modality]


def _encoder(record: Architecture, part: Part, name: str, dtype: jnp.dtype) -> nn.Module:
    """The encoder of one part."""
    if part.modality == "graph":
        graphs = PackedGraphs.of(part.space.graphs)  # type: ignore[union-attr]
        sizes = (record.graph_width, record.graph_layers, record.graph_heads)
        return LEVEL_ENCODERS[record.graph](graphs, *sizes, dtype)
    if part.modality == "state":
        return MLP(part.space, record.state_sizes, name, dtype)
    assert isinstance(part.space, Box)
    picture = picture_shape(part.space.shape)
    assert picture is not None
    if record.convolution == "impala":
        return Impala(part.space, (), dtype)
    if record.convolution == "nature":
        if min(picture[:2]) < NATURE_PIXELS:
            raise ConfigError(
                f"`{_FIELD}` (='nature') needs at least {NATURE_PIXELS} pixels a side, not {part.space.shape}"
            )
        return ConvEncoder(part.space, CONVOLUTIONS["nature"], (), dtype)
    channels = record.local_channels if part.modality == "local" else record.global_channels
    return ConvEncoder(part.space, _convolutions(channels, picture), (), dtype)


def _convolutions(channels: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """(features, kernel, stride) of each convolution: stride 2 while a side has 8 pixels, then 1."""
    found = []
    side = min(shape[:2])
    for features in channels:
        stride = 2 if side >= 8 else 1
        kernel = min(3, side)
        found.append((features, kernel, stride))
        side = (side - kernel) // stride + 1
    return tuple(found)


class Fusion(nn.Module):
    """A module from features [..., F] of each part to [..., size]."""

    size: int
    activation: str
    dtype: jnp.dtype

    def __call__(self, parts: list[Array]) -> Array:
        raise NotImplementedError


class Concatenation(Fusion):
    """A dense layer over all features; without one if `size` is 0."""

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        x = jnp.concatenate(parts, axis=-1)
        if self.size == 0:
            return x
        return activation(self.activation)(Dense(self.size, math.sqrt(2), self.dtype)(x))


class GatedSum(Fusion):
    """A sum of dense layers of the parts, each unit weighted by a sigmoid of all features.

    Arevalo et al. 2017, "Gated Multimodal Units for Information Fusion".
    """

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        act = activation(self.activation)
        every = jnp.concatenate(parts, axis=-1)
        gates = nn.sigmoid(Dense(self.size * len(parts), 1.0, self.dtype)(every))
        seen = [act(Dense(self.size, math.sqrt(2), self.dtype)(part)) for part in parts]
        shares = jnp.split(gates, len(parts), axis=-1)
        return sum((gate * x for gate, x in zip(shares, seen, strict=True)), jnp.zeros_like(seen[0]))


class PartAttention(Fusion):
    """Attention of the parts to each other, then their mean (Vaswani et al. 2017; one layer, residual)."""

    @nn.compact
    def __call__(self, parts: list[Array]) -> Array:
        act = activation(self.activation)
        x = jnp.stack([act(Dense(self.size, math.sqrt(2), self.dtype)(part)) for part in parts], axis=-2)
        heads = _HEADS if self.size % _HEADS == 0 else 1
        dense = lambda: Dense(self.size, 1.0, self.dtype)  # noqa: E731
        query, key, value = (dense()(x).reshape(*x.shape[:-1], heads, -1) for _ in range(3))
        score = jnp.einsum("...phd,...qhd->...hpq", query, key).astype(jnp.float32)
        share = jax.nn.softmax(score / math.sqrt(self.size // heads), axis=-1).astype(self.dtype)
        heard = jnp.einsum("...hpq,...qhd->...phd", share, value).reshape(x.shape)
        return jnp.mean(x + dense()(heard), axis=-2)


FUSIONS: dict[str, type[Fusion]] = {
    "concatenate": Concatenation,
    "gated": GatedSum,
    "attention": PartAttention,
}
