"""The encoder of graphs: messages along edges, then what the agent's node and all nodes together hold."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace, LevelGraphs
from jaxrl.networks.graph_layers import (
    GraphAttention,
    GraphConvolution,
    GraphTransformer,
    KindDense,
    Neighbours,
    neighbours_of,
)
from jaxrl.networks.layers import Dense, activation
from jaxrl.types import Array

TABLES = "tables"  # the collection of what follows from parameters alone
_NAME = "levels"
KEYS = ("agent", "edge_mask", "edges", "node_mask", "nodes")
_ROUNDS = 2
_WIDTH = 32  # features of a node between the rounds


def is_graph(space: Space) -> bool:
    """True if a space has the keys that `GraphEncoder` takes, or names fixed graphs."""
    if isinstance(space, GraphSpace):
        return True
    return isinstance(space, Dict) and tuple(sorted(key for key, _ in space.spaces)) == KEYS


def require_graph(space: Space) -> None:
    """Raises ConfigError if `GraphEncoder` does not take such observations."""
    if isinstance(space, GraphSpace):
        return
    if not (isinstance(space, Dict) and is_graph(space)):
        raise ConfigError(f"`network.encoder` (='graph') needs a dict observation of {', '.join(KEYS)}")
    shapes = {key: part.shape if isinstance(part, Box) else None for key, part in space.spaces}
    nodes = shapes["nodes"] or ()
    edges = shapes["edges"] or ()
    wanted = {"agent": (), "node_mask": nodes[:1], "edge_mask": edges[:1]}
    if len(nodes) != 2 or len(edges) != 2 or edges[1] != 2 or any(shapes[k] != s for k, s in wanted.items()):
        raise ConfigError(
            "`network.encoder` (='graph') needs nodes [N, F], edges [E, 2], node_mask [N], "
            "edge_mask [E] and agent [], not " + ", ".join(f"{key} {shape}" for key, shape in shapes.items())
        )


class GraphEncoder(nn.Module):
    """Rounds of messages (Gilmer et al. 2017, "Neural Message Passing"), then dense layers; for any graph.

    In each round a node adds to what it knows a dense layer of the mean of its neighbours' features and of
    its own. The dense layers at the end see the agent's node, and the mean and the maximum over all nodes.
    Padded nodes and edges have no part in it.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    dtype: jnp.dtype
    graphs: LevelGraphs | None = None

    @nn.compact
    def __call__(self, obs: dict[str, Array]) -> Array:
        """From [..., N, F] and the other arrays of `KEYS`, or `level` in their place, to [..., H]."""
        leading = obs["agent"].shape
        if self.graphs is not None:
            rows = {key: jnp.asarray(getattr(self.graphs, key))[obs["level"]] for key in KEYS[1:]}
            obs = {"agent": obs["agent"], **rows}
        flat = {key: x.reshape(-1, *x.shape[len(leading) :]) for key, x in obs.items()}
        x = self._pool(**flat)
        for size in self.hidden_sizes:
            x = activation(self.activation)(Dense(size, math.sqrt(2), self.dtype)(x))
        return x.reshape(*leading, -1)

    def _pool(self, agent: Array, edge_mask: Array, edges: Array, node_mask: Array, nodes: Array) -> Array:
        act = activation(self.activation)
        count = nodes.shape[1]
        edges = edges.astype(jnp.int32)
        is_agent = jax.nn.one_hot(agent, count, dtype=self.dtype)[..., None]
        x = jnp.concatenate([nodes.astype(self.dtype), is_agent], axis=-1)
        x = act(Dense(_WIDTH, math.sqrt(2), self.dtype)(x))
        weights = edge_mask.astype(self.dtype)[..., None]
        neighbours = jnp.maximum(_receive(weights, edges, count), 1)
        for _ in range(_ROUNDS):
            sent = jnp.take_along_axis(x, edges[..., :1], axis=1) * weights
            mean = _receive(sent, edges, count) / neighbours
            x = x + act(Dense(_WIDTH, math.sqrt(2), self.dtype)(jnp.concatenate([x, mean], axis=-1)))
        is_node = node_mask[..., None]
        total = jnp.sum(jnp.where(is_node, x, 0), axis=1)
        mean = total / jnp.maximum(jnp.sum(is_node, axis=1), 1).astype(self.dtype)
        largest = jnp.max(jnp.where(is_node, x, jnp.finfo(self.dtype).min), axis=1)
        here = jnp.sum(x * is_agent, axis=1)
        return jnp.concatenate([here, mean, largest], axis=-1)


def _receive(sent: Array, edges: Array, count: int) -> Array:
    """[B, E, F] summed at the nodes that edges lead to: [B, N, F]."""
    add = functools.partial(jax.ops.segment_sum, num_segments=count)
    return jax.vmap(add)(sent, edges[..., 1])


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
        edges = neighbours_of(source, target, graphs.edge_kinds[at, edge], len(level))
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


@flax.struct.dataclass
class GraphStates:
    """The states of the nodes of all levels.

    Attributes:
      memories: of each transformer layer, the keys and values that the agent attends to; () of other layers.
      nodes: [M, W], after the last layer.
      levels: [G, 2 W], the mean and the maximum over the nodes of each level.
    """

    memories: tuple[tuple[Array, Array], ...]
    nodes: Array
    levels: Array


class LevelEncoder(nn.Module):
    """The agent's node, and mean and maximum over the nodes of its level, one of several fixed graphs.

    The levels' nodes get messages from each other, never from the agent. So their states follow from the
    parameters alone: they are computed once for all levels, and once for a whole rollout (`Network.prepare`),
    and a row of observations only looks them up. The agent stands on a node, and only receives.
    """

    graphs: PackedGraphs
    width: int
    layers: int
    heads: int
    dtype: jnp.dtype

    def levels(self) -> tuple[tuple[tuple[Array, Array], ...], Array]:
        """(memories, nodes) of `GraphStates`."""
        raise NotImplementedError

    def agents(self, tables: GraphStates, place: Array) -> Array:
        """[R, W], of agents at these nodes, int32[R]."""
        raise NotImplementedError

    def __call__(self, obs: dict[str, Array]) -> Array:
        """From `agent` and `level`, [...], to features [..., 3 W]."""
        tables = self._tables()
        level = obs["level"].reshape(-1)
        place = jnp.asarray(self.graphs.place)[level, obs["agent"].reshape(-1)]
        found = jnp.concatenate([self.agents(tables, place), tables.levels[level]], axis=-1)
        return found.reshape(*obs["agent"].shape, -1)

    def _tables(self) -> GraphStates:
        if self.has_variable(TABLES, _NAME):
            return self.get_variable(TABLES, _NAME)
        memories, nodes = self.levels()
        tables = GraphStates(memories, nodes, self._pool(nodes))
        if self.is_mutable_collection(TABLES):
            self.put_variable(TABLES, _NAME, tables)
        return tables

    def _pool(self, nodes: Array) -> Array:
        is_node = jnp.asarray(self.graphs.is_node)[..., None]
        x = nodes[jnp.asarray(self.graphs.place)]
        count = jnp.sum(is_node, axis=1).astype(self.dtype)
        mean = jnp.sum(jnp.where(is_node, x, 0), axis=1) / count
        largest = jnp.max(jnp.where(is_node, x, jnp.finfo(self.dtype).min), axis=1)
        return jnp.concatenate([mean, largest], axis=-1)


class TransformerEncoder(LevelEncoder):
    """Heterogeneous graph transformer (Hu et al. 2020); the agent is one more kind of node."""

    def setup(self) -> None:
        kinds = len(self.graphs.kinds) + 1
        relations = self.graphs.num_relations
        self.enter = KindDense(self.width, kinds, self.dtype)
        self.hear = [
            GraphTransformer(self.width, self.heads, kinds, relations, self.dtype) for _ in range(self.layers)
        ]

    def levels(self) -> tuple[tuple[tuple[Array, Array], ...], Array]:
        packed = self.graphs
        kind_of = jnp.asarray(packed.kind_of)
        source_kinds = jnp.asarray(packed.source_kinds)
        x = jnp.tanh(self.enter(jnp.asarray(packed.nodes), packed.kinds))
        memories = []
        for layer in self.hear:
            memories.append(layer.memory(x, packed.kinds))
            x = layer(x, packed.kinds, kind_of, packed.edges, memories[-1], source_kinds)
        return tuple(memories), x

    def agents(self, tables: GraphStates, place: Array) -> Array:
        packed, count = self.graphs, place.shape[0]  # of an export a symbol, which len() refuses
        fixed = packed.edges
        at = lambda table: jnp.asarray(table)[place]  # noqa: E731
        edges = Neighbours(at(fixed.index), at(fixed.mask), fixed.kinds)
        own = len(packed.kinds)  # the kind of agents
        kinds = (0,) * own + (count,)
        kind_of = jnp.full(count, own)
        x = jnp.tanh(self.enter(at(packed.nodes), kinds))
        for layer, memory in zip(self.hear, tables.memories, strict=True):
            x = layer(x, kinds, kind_of, edges, memory, at(packed.source_kinds))
        return x


class HomogeneousEncoder(LevelEncoder):
    """Layers for which all nodes and edges are alike; the agent has what its node holds."""

    def layer(self) -> Any:
        """One layer."""
        raise NotImplementedError

    @nn.compact
    def levels(self) -> tuple[tuple[tuple[Array, Array], ...], Array]:
        x = jnp.asarray(self.graphs.nodes)
        kind = jax.nn.one_hot(self.graphs.kind_of, len(self.graphs.kinds), dtype=x.dtype)
        x = nn.relu(Dense(self.width, math.sqrt(2), self.dtype)(jnp.concatenate([x, kind], axis=-1)))
        for _ in range(self.layers):
            x = self.layer()(x, self.graphs.edges)
        return (), x

    def agents(self, tables: GraphStates, place: Array) -> Array:
        return tables.nodes[place]


class AttentionEncoder(HomogeneousEncoder):
    """Graph attention (Velickovic et al. 2018)."""

    def layer(self) -> nn.Module:
        return GraphAttention(self.width, self.heads, self.dtype)


class ConvolutionEncoder(HomogeneousEncoder):
    """Graph convolution (Kipf and Welling 2017)."""

    def layer(self) -> nn.Module:
        return GraphConvolution(self.width, self.dtype)


# Checkpoints have parameters under the names of these classes.
LEVEL_ENCODERS: dict[str, type[LevelEncoder]] = {
    "hgt": TransformerEncoder,
    "gat": AttentionEncoder,
    "gcn": ConvolutionEncoder,
}
