"""Levels as graphs: a node for each tile that can be reached, an edge between tiles side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.graphs import GraphSpace, LevelGraphs
from jaxrl.envs.native.platformer import level as tiles
from jaxrl.envs.native.platformer.level import COLUMNS, ROWS, PlatformerLevel

_HEIGHT, _WIDTH = ROWS - 2, COLUMNS - 2  # the border is solid
MAX_NODES = _HEIGHT * _WIDTH
MAX_EDGES = 2 * (_HEIGHT * (_WIDTH - 1) + (_HEIGHT - 1) * _WIDTH)  # both directions of each pair
NODE_KINDS = ("empty", "mine", "switch", "exit")
EDGE_KINDS = ("side", "up", "down")
# (rows, columns, kind of the edge to there): below, above, left, right.
_BESIDE = ((1, 0, "down"), (-1, 0, "up"), (0, -1, "side"), (0, 1, "side"))


@dataclass(frozen=True)
class GraphTables:
    """The graphs of N levels, computed once: at a step only the player's node is looked up."""

    graphs: LevelGraphs
    node_of: np.ndarray  # int16[N, ROWS, COLUMNS], the node of a tile; 0 if there is none

    @classmethod
    def of(cls, levels: Sequence[PlatformerLevel]) -> GraphTables:
        found = [_graph_of(level) for level in levels]
        return cls(LevelGraphs.stacked([graph for graph, _ in found]), np.stack([node for _, node in found]))

    @property
    def space(self) -> GraphSpace:
        return GraphSpace.of(self.graphs)

    def observe(self, level: jax.Array, column: jax.Array, row: jax.Array) -> dict[str, jax.Array]:
        """The player at a tile of a level, an element of `space`."""
        return {"agent": jnp.asarray(self.node_of)[level, row, column], "level": level}


def _graph_of(level: PlatformerLevel) -> tuple[LevelGraphs, np.ndarray]:
    """A stack of one graph, and the node of each tile."""
    # The player is nearly as large as a tile, so it never slips through between two corners.
    inside = level.distances_to(tiles.START) < ROWS * COLUMNS
    cells = np.argwhere(inside)
    node_of = np.zeros((ROWS, COLUMNS), np.int16)
    node_of[inside] = np.arange(len(cells))
    solid = level.tiles_of(tiles.SOLID)
    features = [2 * cells[:, ::-1] / (COLUMNS - 1, ROWS - 1) - 1]
    edges = []
    edge_kinds = []
    for rows, columns, kind in _BESIDE:
        there = (cells[:, 0] + rows, cells[:, 1] + columns)
        features.append(solid[there][:, None])
        is_node = inside[there]
        edges.append(np.stack([np.flatnonzero(is_node), node_of[there][is_node]], axis=-1))
        edge_kinds.append(np.full(is_node.sum(), EDGE_KINDS.index(kind)))
    letters = [level.tiles_of(letter)[inside] for letter in (tiles.MINE, tiles.SWITCH, tiles.EXIT)]
    nodes = np.concatenate([*features, *(x[:, None] for x in letters)], axis=1)
    pairs = np.concatenate(edges)
    kinds = np.select(letters, [NODE_KINDS.index(kind) for kind in ("mine", "switch", "exit")], 0)
    graph = LevelGraphs(
        nodes=_padded(nodes, MAX_NODES, np.float32),
        node_mask=_padded(np.ones(len(nodes)), MAX_NODES, np.bool_),
        node_kinds=_padded(kinds, MAX_NODES, np.int8),
        edges=_padded(pairs, MAX_EDGES, np.int16),
        edge_mask=_padded(np.ones(len(pairs)), MAX_EDGES, np.bool_),
        edge_kinds=_padded(np.concatenate(edge_kinds), MAX_EDGES, np.int8),
        kinds_of_nodes=NODE_KINDS,
        kinds_of_edges=EDGE_KINDS,
    )
    return graph, node_of


def _padded(x: np.ndarray, rows: int, dtype: type) -> np.ndarray:
    """[1, rows, ...], zeros after the rows of `x`."""
    return np.pad(x, ((0, rows - len(x)), *((0, 0),) * (x.ndim - 1))).astype(dtype)[None]
