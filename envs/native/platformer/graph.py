"""Levels as graphs: a node for each tile that can be reached, an edge between tiles side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict
from jaxrl.envs.native.platformer.level import (
    COLUMNS,
    EXIT,
    MINE,
    ROWS,
    SOLID,
    START,
    SWITCH,
    PlatformerLevel,
)

_HEIGHT, _WIDTH = ROWS - 2, COLUMNS - 2  # the border is solid
MAX_NODES = _HEIGHT * _WIDTH
MAX_EDGES = 2 * (_HEIGHT * (_WIDTH - 1) + (_HEIGHT - 1) * _WIDTH)  # both directions of each pair
NUM_FEATURES = 9
_BESIDE = ((1, 0), (-1, 0), (0, -1), (0, 1))  # (rows, columns): below, above, left, right
_LARGEST_INT16 = 2**15 - 1

SPACE = Dict(
    (
        ("agent", Box.of(0, MAX_NODES - 1, (), np.int16)),
        ("edge_mask", Box.of(0, 1, (MAX_EDGES,), np.bool_)),
        ("edges", Box.of(0, MAX_NODES - 1, (MAX_EDGES, 2), np.int16)),
        ("node_mask", Box.of(0, 1, (MAX_NODES,), np.bool_)),
        ("nodes", Box.of(-1.0, 1.0, (MAX_NODES, NUM_FEATURES))),
    )
)
assert MAX_NODES <= _LARGEST_INT16


@dataclasses.dataclass(frozen=True)
class GraphTables:
    """The graphs of N levels, computed once: at a step only the player's node is looked up.

    Attributes:
      nodes: float32[N, MAX_NODES, NUM_FEATURES].
      node_mask: bool[N, MAX_NODES].
      edges: int16[N, MAX_EDGES, 2], (from, to).
      edge_mask: bool[N, MAX_EDGES].
      node_of: int16[N, ROWS, COLUMNS], the node of a tile; 0 where there is none.
    """

    nodes: np.ndarray
    node_mask: np.ndarray
    edges: np.ndarray
    edge_mask: np.ndarray
    node_of: np.ndarray

    @classmethod
    def of(cls, levels: Sequence[PlatformerLevel]) -> GraphTables:
        """Makes the graphs of levels."""
        found = [_graph_of(level) for level in levels]
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: np.stack([graph[name] for graph in found]) for name in names})

    def observe(self, level: jax.Array, column: jax.Array, row: jax.Array) -> dict[str, jax.Array]:
        """The graph of a level, an element of `SPACE`, with the player at a tile."""
        return {
            "agent": jnp.asarray(self.node_of)[level, row, column],
            "edge_mask": jnp.asarray(self.edge_mask)[level],
            "edges": jnp.asarray(self.edges)[level],
            "node_mask": jnp.asarray(self.node_mask)[level],
            "nodes": jnp.asarray(self.nodes)[level],
        }


def _graph_of(level: PlatformerLevel) -> dict[str, np.ndarray]:
    # The player is nearly as large as a tile, so it never slips through between two corners.
    inside = level.distances_to(START) < ROWS * COLUMNS
    tiles = np.argwhere(inside)
    node_of = np.zeros((ROWS, COLUMNS), np.int16)
    node_of[inside] = np.arange(len(tiles))
    solid = level.tiles_of(SOLID)
    features, edges = [2 * tiles[:, ::-1] / (COLUMNS - 1, ROWS - 1) - 1], []
    for rows, columns in _BESIDE:
        there = (tiles[:, 0] + rows, tiles[:, 1] + columns)
        features.append(solid[there][:, None])
        is_node = inside[there]
        edges.append(np.stack([np.flatnonzero(is_node), node_of[there][is_node]], axis=-1))
    for letter in (MINE, SWITCH, EXIT):
        features.append(level.tiles_of(letter)[inside][:, None])
    nodes, pairs = np.concatenate(features, axis=1), np.concatenate(edges)
    return {
        "nodes": np.pad(nodes, ((0, MAX_NODES - len(nodes)), (0, 0))).astype(np.float32),
        "node_mask": np.arange(MAX_NODES) < len(nodes),
        "edges": np.pad(pairs, ((0, MAX_EDGES - len(pairs)), (0, 0))).astype(np.int16),
        "edge_mask": np.arange(MAX_EDGES) < len(pairs),
        "node_of": node_of,
    }
