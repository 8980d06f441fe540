"""Encoders of graphs: what they leave out, what does not matter to them, and what they refuse."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict
from jaxrl.envs.graphs import GraphSpace, LevelGraphs
from jaxrl.networks.encoders import build_encoder
from jaxrl.networks.graphs import LEVEL_ENCODERS, PackedGraphs
from tests.networks.test_encoders import NETWORK, VECTOR, encode, encoder_of

NODES, EDGES = 5, 6
GRAPH = Dict(
    (
        ("agent", Box.of(0, NODES - 1, (), np.int16)),
        ("edge_mask", Box.of(0, 1, (EDGES,), np.bool_)),
        ("edges", Box.of(0, NODES - 1, (EDGES, 2), np.int16)),
        ("node_mask", Box.of(0, 1, (NODES,), np.bool_)),
        ("nodes", Box.of(-1, 1, (NODES, 2))),
    )
)


def chain():
    """Nodes 0 - 1 - 2 - 3, the agent at 0; node 4 and the last edges are padding."""
    return {
        "agent": np.zeros((1,), np.int16),
        "edge_mask": np.array([[True, True, True, False, False, False]]),
        "edges": np.array([[[1, 0], [2, 1], [3, 2], [0, 0], [4, 0], [3, 0]]], np.int16),
        "node_mask": np.array([[True, True, True, True, False]]),
        "nodes": np.arange(10, dtype=np.float32).reshape(1, NODES, 2) / 10,
    }


def test_graphs_are_encoded_without_their_padding():
    obs = chain()
    apply, params = encoder_of(GRAPH, obs)
    before = np.asarray(apply(params, obs))
    assert before.shape == (1, 8)

    def changed(key, index, value):
        other = np.array(obs[key])
        other[index] = value
        return {key: other}

    padded = obs | changed("nodes", (0, 4), 7.0) | changed("edges", (0, slice(3, None)), 2)
    np.testing.assert_array_equal(apply(params, padded), before)
    for one in (
        changed("agent", 0, 1),
        changed("edge_mask", (0, 4), True),
        changed("node_mask", (0, 4), True),
        changed("nodes", (0, 2), 0.0),
    ):
        assert (np.asarray(apply(params, obs | one)) != before).any()


def test_the_order_of_the_nodes_of_a_graph_does_not_matter():
    obs, order = chain(), np.array([3, 1, 4, 0, 2])
    place = np.argsort(order)  # of each old node
    moved = {
        "agent": place[obs["agent"]].astype(np.int16),
        "edge_mask": obs["edge_mask"],
        "edges": place[obs["edges"]].astype(np.int16),
        "node_mask": obs["node_mask"][:, order],
        "nodes": obs["nodes"][:, order],
    }
    apply, params = encoder_of(GRAPH, obs)
    np.testing.assert_allclose(apply(params, moved), apply(params, obs), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_graphs_have_leading_dimensions_and_other_keys_beside_them():
    space = Dict((("graph", GRAPH), ("vector", VECTOR)))
    graph = {key: np.broadcast_to(x[0], (2, 3, *x.shape[1:])) for key, x in chain().items()}
    features, _ = encode(space, {"graph": graph, "vector": jnp.zeros((2, 3, 3))})
    assert features.shape == (2, 3, 16)
    np.testing.assert_allclose(features[1, 2], features[0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("encoder", "space", "message"),
    [
        ("graph", VECTOR, "needs a dict observation of agent, edge_mask, edges, node_mask, nodes"),
        ("graph", Dict((*GRAPH.spaces[:-1], ("nodes", Box.of(-1, 1, (3, 2))))), "needs nodes .N, F., edges"),
        ("mlp", GRAPH, "takes one array, not the dict of agent"),
        ("nature", GRAPH, "needs an observation of .height, width, channels., not Dict"),
    ],
)
def test_what_encoders_of_graphs_and_arrays_refuse(encoder, space, message):
    with pytest.raises(ConfigError, match=message):
        build_encoder(dataclasses.replace(NETWORK, encoder=encoder), space)


def test_graphs_that_are_named_are_encoded_as_those_in_rows():
    row = {key: np.asarray(x) for key, x in chain().items()}
    kinds = {"node_kinds": np.zeros((1, NODES), np.int8), "edge_kinds": np.zeros((1, EDGES), np.int8)}
    graphs = LevelGraphs(**{key: x for key, x in row.items() if key != "agent"}, **kinds)
    obs = chain()
    apply, params = encoder_of(GRAPH, obs)
    named = jax.jit(build_encoder(NETWORK, GraphSpace.of(graphs)).apply)
    found = named(params, {"agent": obs["agent"], "level": np.zeros(1, np.int32)})
    np.testing.assert_array_equal(found, apply(params, obs))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", sorted(LEVEL_ENCODERS))
def test_a_level_has_the_same_features_beside_a_larger_one(architecture):
    """Beside a larger level it is padded; the mean and the maximum are over its own nodes."""
    encoder = LEVEL_ENCODERS[architecture]
    rng = np.random.default_rng(0)
    counts, size = (2, 5), 5
    graphs = LevelGraphs(
        nodes=rng.normal(size=(2, size, 3)).astype(np.float32),
        node_mask=np.arange(size) < np.array(counts)[:, None],
        node_kinds=np.zeros((2, size), np.int8),
        edges=np.array([[[0, 1], [1, 0]], [[0, 4], [2, 1]]], np.int16),
        edge_mask=np.ones((2, 2), bool),
        edge_kinds=np.zeros((2, 2), np.int8),
    )
    alone = LevelGraphs(
        nodes=graphs.nodes[:1, :2],
        node_mask=graphs.node_mask[:1, :2],
        node_kinds=graphs.node_kinds[:1, :2],
        edges=graphs.edges[:1],
        edge_mask=graphs.edge_mask[:1],
        edge_kinds=graphs.edge_kinds[:1],
    )
    obs = {"agent": np.array([1], np.int16), "level": np.zeros(1, np.int32)}
    both, one = (encoder(PackedGraphs.of(x), 4, 1, 2, jnp.float32) for x in (graphs, alone))
    features, variables = jax.jit(both.init_with_output)(jax.random.key(0), obs)
    params = {"params": variables["params"]}  # without the tables of the levels
    np.testing.assert_allclose(jax.jit(one.apply)(params, obs), features, rtol=1e-5, atol=1e-6)
