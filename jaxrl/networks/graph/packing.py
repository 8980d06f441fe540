"""All graphs of a space as one, without padding, for layers that take the nodes of several in one array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxrl.envs.graphs import LevelGraphs
from jaxrl.networks.graph.neighbours import EdgeList, Neighbours


@dataclass(frozen=True, eq=False)
class PackedGraphs:
    """The graphs of G levels as one of M nodes, sorted by kind. Constants in numpy.

    Attributes:
      nodes: float32[M, F].
      kinds: the number of nodes of each kind.
      kind_of: int32[M].
      num_relations: kinds of edges.
      edges: of [M, D].
      source_kinds: int32[M, D], the kinds of the nodes that they come from.
      place: int32[G, N], where a node of a level is among the M; 0 for padding.
      is_node: bool[G, N].
    """

    nodes: np.ndarray
    kinds: tuple[int, ...]
    kind_of: np.ndarray
    num_relations: int
    edges: Neighbours
    source_kinds: np.ndarray
    place: np.ndarray
    is_node: np.ndarray

    @classmethod
    def of(cls, graphs: LevelGraphs) -> PackedGraphs:
        """Packs graphs."""
        level, node = np.nonzero(graphs.node_mask)
        order = np.argsort(graphs.node_kinds[level, node], kind="stable")
        level = level[order]
        node = node[order]
        kind_of = graphs.node_kinds[level, node].astype(np.int32)
        place = np.zeros(graphs.node_mask.shape, np.int32)
        place[level, node] = np.arange(len(level))
        at, edge = np.nonzero(graphs.edge_mask)
        source, target = (place[at, graphs.edges[at, edge, end]] for end in (0, 1))
        edges = EdgeList(source, target, graphs.edge_kinds[at, edge]).neighbours(len(level))
        return cls(
            nodes=graphs.nodes[level, node],
            kinds=tuple(np.bincount(kind_of, minlength=len(graphs.kinds_of_nodes)).tolist()),
            kind_of=kind_of,
            num_relations=len(graphs.kinds_of_edges),
            edges=edges,
            source_kinds=kind_of[np.asarray(edges.index)],
            place=place,
            is_node=graphs.node_mask,
        )
