"""The encoder of graphs: messages along edges, then what the agent's node and all nodes together hold.

It takes any graph, another one in every row. Graphs that are fixed for each level are faster with the layers
of `jaxrl/networks/graph`.
"""

from __future__ import annotations

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict, Space
from jaxrl.envs.graphs import GraphSpace, LevelGraphs
from jaxrl.networks.layers import Dense, activation
from jaxrl.types import Array

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
    """Rounds of messages (Gilmer et al. 2017, "Neural Message Passing"), then dense layers.

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
