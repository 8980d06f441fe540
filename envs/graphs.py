"""Graphs that an observation names by number: they never change, so the space holds them, and no row does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.envs.spaces import Box, Dict, Space

KEYS = ("agent", "level")
_MOST_LEVELS = 2**16  # graphs of a space; a bound of its own, so that spaces with other graphs are equal
_MOST_NODES = 2**15  # what int16 holds


@dataclasses.dataclass(frozen=True, eq=False)
class LevelGraphs:
    """Directed graphs of G levels, padded to one shape. Numpy arrays, which nobody writes to."""

    nodes: np.ndarray  # float32[G, N, F], features; padding may hold anything
    node_mask: np.ndarray  # bool[G, N], True for nodes
    node_kinds: np.ndarray  # int8[G, N], an index into `kinds_of_nodes`
    edges: np.ndarray  # int16[G, E, 2], from which node to which
    edge_mask: np.ndarray  # bool[G, E], True for edges
    edge_kinds: np.ndarray  # int8[G, E], an index into `kinds_of_edges`
    kinds_of_nodes: tuple[str, ...] = ("node",)
    kinds_of_edges: tuple[str, ...] = ("edge",)

    def __post_init__(self) -> None:
        count, nodes, _ = self.nodes.shape
        edges = self.edges.shape[1]
        shapes = dict.fromkeys(("node_mask", "node_kinds"), (count, nodes)) | {"edges": (count, edges, 2)}
        shapes |= dict.fromkeys(("edge_mask", "edge_kinds"), (count, edges))
        for name, shape in shapes.items():
            if (found := getattr(self, name).shape) != shape:
                text = f"has the shape {found}, not {shape} as required by the nodes"
                raise ValueError(f"LevelGraphs.{name} {text}")
        if count > _MOST_LEVELS or nodes > _MOST_NODES:
            raise ValueError(
                f"LevelGraphs has {count} graphs of {nodes} nodes; at most {_MOST_LEVELS} of {_MOST_NODES} "
                "are possible"
            )
        if not self.node_mask.any(axis=1).all():
            raise ValueError("LevelGraphs.node_mask must have a node in every graph")

    @classmethod
    def stacked(cls, graphs: Sequence[LevelGraphs]) -> LevelGraphs:
        """Joins graphs of one shape, and of the same kinds of nodes and edges."""
        names = [f.name for f in dataclasses.fields(cls) if not f.name.startswith("kinds_of")]
        arrays: dict[str, Any] = {name: np.concatenate([getattr(g, name) for g in graphs]) for name in names}
        return dataclasses.replace(graphs[0], **arrays)

    def equals(self, other: LevelGraphs) -> bool:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))
        return self is other or all(np.array_equal(a, b) for a, b in pairs)


@dataclasses.dataclass(frozen=True)
class GraphSpace(Dict):
    """The agent's node in one of several graphs: `agent` int16[] and `level` int32[].

    Spaces with other graphs count as equal: a policy can act in both, with the `graphs` of each, into which
    `level` is an index.
    """

    graphs: LevelGraphs = dataclasses.field(compare=False, repr=False)

    @classmethod
    def of(cls, graphs: LevelGraphs) -> GraphSpace:
        """The space of an agent in any node of these graphs."""
        agent = Box.of(0, graphs.nodes.shape[1] - 1, (), np.int16)
        return cls((("agent", agent), ("level", Box.of(0, _MOST_LEVELS - 1, (), np.int32))), graphs)


def have_equal_graphs(one: Space, other: Space) -> bool:
    """True unless two equal spaces hold graphs that differ."""
    if isinstance(one, GraphSpace) and isinstance(other, GraphSpace):
        return one.graphs.equals(other.graphs)
    if isinstance(one, Dict) and isinstance(other, Dict):
        pairs = zip(one.spaces, other.spaces, strict=True)
        return all(have_equal_graphs(a, b) for (_, a), (_, b) in pairs)
    return True
