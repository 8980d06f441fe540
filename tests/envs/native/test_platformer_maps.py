"""Observations of `jaxrl:Platformer` that show the whole level: the way and the graph."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from tests.envs.native.test_platformer import NAME, folder_of, level


@pytest.mark.slow
def test_the_way_is_shorter_towards_the_switch_and_then_the_exit(tmp_path):
    # Two storeys: the exit is right above the start, and the way to it leads around the right end.
    rows = ("##########", "#E.......#", "#######..#", "#........#", "#S..K....#", "##########")
    env = envs.make(f"{NAME}(levels='{folder_of(tmp_path, level(rows))}', observation=('state', 'way'))")
    assert env.spec.observation_space["way"].shape == (99,)
    state, obs = env.start(jnp.int32(0))
    way = np.asarray(obs["way"]).reshape(9, 11)  # the player is in row 4, column 5 of it
    np.testing.assert_allclose(way[4, 5:11], [0, 0.2, 0.4, 0.6, 0.4, 0.2], atol=1e-6)
    np.testing.assert_allclose(way[3, 5:9], [-0.2, 0, 0.2, 0.4], atol=1e-6)
    assert (way[[2, 5, 8]][:, :6] == -1).all()
    assert (way[:, :5] == -1).all()
    # From the exit it is 12 tiles to the switch.
    assert way[1, 5] == -1
    state = dataclasses.replace(state, x=state.x + 24, on=jnp.ones((), bool))
    way = np.asarray(env.step(jax.random.key(0), state, jnp.int32(1))[1].obs["way"]).reshape(9, 11)
    np.testing.assert_allclose(way[4, 2:8], [-0.6, -0.4, -0.2, 0, 0.2, 0.4], atol=1e-6)
    np.testing.assert_allclose(way[3, 5], 0.2, atol=1e-6)
    assert way[1, 2] == 1


@pytest.mark.slow
def test_the_graph_is_that_of_the_tiles():
    env = envs.make(f"{NAME}(observation='graph', category='simple')")
    _, obs = env.start(jnp.int32(2))
    graphs, one = env.spec.observation_space["graph"].graphs, env.levels[2]
    found = {name: getattr(graphs, name)[2] for name in ("nodes", "node_mask", "node_kinds", "edges")}
    found |= {name: getattr(graphs, name)[2] for name in ("edge_mask", "edge_kinds")}
    assert obs["graph"]["level"] == 2
    tiles = {}
    for node, features in enumerate(found["nodes"][found["node_mask"]]):
        column, row = np.rint((features[:2] + 1) * (23, 15) / 2).astype(int)
        letter = one.rows[row][column]
        beside = [(row + 1, column), (row - 1, column), (row, column - 1), (row, column + 1)]
        assert letter != "#"
        assert features[2:6].tolist() == [one.rows[r][c] == "#" for r, c in beside]
        assert features[6:].tolist() == [letter == kind for kind in "xKE"]
        kind = {"x": "mine", "K": "switch", "E": "exit"}.get(letter, "empty")
        assert graphs.kinds_of_nodes[found["node_kinds"][node]] == kind
        tiles[row, column] = node
    assert not found["nodes"][~found["node_mask"]].any()
    pairs = {
        (node, tiles[there])
        for (row, column), node in tiles.items()
        for there in ((row + 1, column), (row - 1, column), (row, column - 1), (row, column + 1))
        if there in tiles
    }
    edges = found["edges"][found["edge_mask"]]
    assert len(edges) == len(pairs)
    assert {tuple(edge) for edge in edges.tolist()} == pairs
    place = {node: tile for tile, node in tiles.items()}
    for (a, b), number in zip(edges.tolist(), found["edge_kinds"][found["edge_mask"]], strict=True):
        climbs = place[b][0] - place[a][0]  # rows count downwards
        assert graphs.kinds_of_edges[number] == {-1: "up", 0: "side", 1: "down"}[climbs]
    column, row = one.place_of("S")
    assert obs["graph"]["agent"] == tiles[row, column]
    # Every open tile of this level can be reached from the start.
    assert len(tiles) == len(one.rows) * len(one.rows[0]) - "".join(one.rows).count("#")
    vector = envs.make(f"{NAME}(category='simple')").start(jnp.int32(2))[1]
    np.testing.assert_array_equal(obs["player"], vector[:16])


@pytest.mark.slow
def test_the_player_moves_through_the_graph():
    env = envs.make(f"{NAME}(observation=('graph', 'local'), category='medium')")
    state, first = jax.jit(env.start)(jnp.int32(0))
    step, seen = jax.jit(env.step), [int(first["graph"]["agent"])]
    graphs = env.spec.observation_space["graph"].graphs
    edges = graphs.edges[0][graphs.edge_mask[0]]
    for action in env.levels[0].solution:
        state, timestep = step(jax.random.key(0), state, jnp.int32(int(action)))
        graph = timestep.obs["graph"]
        seen.append(int(graph["agent"]))
        assert graph["level"] == 0
        assert timestep.obs["local"].shape == (44, 44, 1)
    steps = {(a, b) for a, b in itertools.pairwise(seen) if a != b}
    # A step may cross a corner, from a tile to one that is two edges away.
    near = {tuple(edge) for edge in edges.tolist()}
    two = {(a, d) for a, b in near for c, d in near if b == c}
    assert len(steps) > 5
    assert steps <= near | two
