"""Architectures by name: what each sees, of what sizes, and the encoder that it is for an observation."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.config.errors import did_you_mean
from jaxrl.config.network import MODALITIES
from jaxrl.envs import modules
from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace
from jaxrl.envs.pictures import picture_shape
from jaxrl.networks.encoders import CONVOLUTIONS, MLP, NATURE_PIXELS, ConvEncoder, Impala, JointMLP
from jaxrl.networks.fusion import FUSIONS, PartsEncoder
from jaxrl.networks.graphs import LEVEL_ENCODERS, PackedGraphs
from jaxrl.networks.layers import DTYPES, activation
from jaxrl.networks.registry import import_attribute

_FIELD = "network.architecture"


@dataclass(frozen=True)
class Architecture:
    """The modalities of an architecture and its sizes; a field of `network` overrides each.

    Attributes:
      sees: which of state, local, global, graph.
      graph: the layers of the graph: hgt (Hu et al. 2020), gat (Velickovic et al. 2018) or gcn (Kipf and
        Welling 2017).
      graph_layers, graph_width, graph_heads: their number, the units of a node, the heads that share them.
      convolution: of the pictures: plain (the channels below), impala (Espeholt et al. 2018) or nature
        (Mnih et al. 2015).
      local_channels, global_channels: of each plain 3x3 convolution; they have stride 2.
      state_sizes: units of each dense layer on the state.
      fusion: concatenate, gated or attention.
      fusion_size: units of the result; 0: the parts as they are, one after the other.
    """

    sees: tuple[str, ...]
    graph: str = "hgt"
    graph_layers: int = 3
    graph_width: int = 128
    graph_heads: int = 4
    convolution: str = "plain"
    local_channels: tuple[int, ...] = (16, 32, 32)
    global_channels: tuple[int, ...] = (16, 32)
    state_sizes: tuple[int, ...] = (128,)
    fusion: str = "concatenate"
    fusion_size: int = 256


def _small(graph: str) -> Architecture:
    """Two layers of a graph network without kinds of nodes, beside the state."""
    sizes = {"graph_layers": 2, "graph_width": 64, "fusion_size": 128}
    return Architecture(("state", "graph"), graph=graph, **sizes)  # type: ignore[arg-type]


ARCHITECTURES: dict[str, Architecture] = {
    "full_hgt": Architecture(MODALITIES),
    "simplified_hgt": Architecture(
        MODALITIES,
        graph_layers=1,
        graph_width=64,
        graph_heads=2,
        local_channels=(8, 16, 16),
        global_channels=(8, 16),
        state_sizes=(64,),
        fusion_size=128,
    ),
    "gat": _small("gat"),
    "gcn": _small("gcn"),
    "vision_free": Architecture(("state", "graph")),
    "local_only": Architecture(("state", "local", "graph")),
    "mlp_baseline": Architecture(("state",), state_sizes=(256, 256), fusion_size=0),
    "impala": Architecture(("local",), convolution="impala"),
    "nature": Architecture(("local",), convolution="nature", fusion_size=512),
}
# Fields of both a record and the configuration; `graph` and `convolution` are of the record alone.
_SIZES = [f.name for f in dataclasses.fields(Architecture) if f.name in NetworkConfig.__dataclass_fields__]
_AS_NAMED = (None, (), "")  # values of fields that change nothing


@dataclass(frozen=True)
class Part:
    """A part of an observation: state, local, global or graph, by its key; "" if that is no dict."""

    modality: str
    key: str
    space: Space


def parts_of(space: Space) -> list[Part]:
    """The parts of an observation by key: graphs, pictures (local unless the key says global), and the state.

    A graph in rows, and any other dict in a dict, is none of these.
    """
    spaces: Sequence[tuple[str, Space]] = [("", space)]
    if isinstance(space, Dict) and not isinstance(space, GraphSpace):
        spaces = space.spaces
    return [Part(modality, key, part) for key, part in spaces if (modality := _modality(key, part))]


def _modality(key: str, space: Space) -> str:
    if isinstance(space, GraphSpace):
        return "graph"
    if isinstance(space, Dict):
        return ""
    if isinstance(space, Box) and picture_shape(space.shape):
        return "global" if key == "global" else "local"
    return "state"


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
    found = import_attribute(given, name)
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
