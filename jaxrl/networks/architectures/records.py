"""The architectures that have names, a record of sizes each, and the parts of observations that they see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxrl.config.network import MODALITIES
from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace
from jaxrl.envs.pictures import picture_shape


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


@dataclass(frozen=True)
class Part:
    """A part of an observation.

    Attributes:
      modality: state, local, global or graph.
      key: its key in the observation; "" if that is no dict.
      space: its own.
    """

    modality: str
    key: str
    space: Space


def parts_of(space: Space) -> list[Part]:
    """The parts of an observation by key: graphs, pictures (local unless the key says global), and the state.

    A graph in rows, and any other dict in a dict, is none of these.
    """
    return [part for part in _parts(space) if part.modality]


def _parts(space: Space) -> Iterator[Part]:
    if isinstance(space, Dict) and not isinstance(space, GraphSpace):
        for key, part in space.spaces:
            yield Part(_modality(key, part), key, part)
    else:
        yield Part(_modality("", space), "", space)


def _modality(key: str, space: Space) -> str:
    if isinstance(space, GraphSpace):
        return "graph"
    if isinstance(space, Dict):
        return ""
    if isinstance(space, Box) and picture_shape(space.shape):
        return "global" if key == "global" else "local"
    return "state"
