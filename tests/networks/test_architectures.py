"""Architectures by name: what they see, their sizes, their fusion, and graphs computed once."""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import networks
from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec
from jaxrl.envs.graphs import GraphSpace, LevelGraphs, have_equal_graphs
from jaxrl.networks import (
    ARCHITECTURES,
    Architecture,
    HeadOnTrunk,
    ValueHead,
    build_architecture,
    resolve_architecture,
)
from tests.compiled_programs import tiny_config

NETWORK = dataclasses.replace(tiny_config().network, activation="relu", core="none")


def graphs(seed: int = 0) -> LevelGraphs:
    """Two levels of 4 and 3 nodes, of three kinds, padded to 5 nodes."""
    rng = np.random.default_rng(seed)
    edges = np.array([[[0, 1], [1, 0], [1, 2], [3, 2], [0, 0]], [[0, 2], [2, 1], [1, 2], [0, 0], [0, 0]]])
    return LevelGraphs(
        nodes=rng.normal(size=(2, 5, 3)).astype(np.float32),
        node_mask=np.array([[True] * 4 + [False], [True] * 3 + [False] * 2]),
        node_kinds=np.array([[0, 2, 0, 1, 0], [1, 1, 0, 0, 0]], np.int8),
        edges=edges.astype(np.int16),
        edge_mask=np.array([[True] * 4 + [False], [True] * 3 + [False] * 2]),
        edge_kinds=np.array([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]], np.int8),
        kinds_of_nodes=("empty", "mine", "exit"),
        kinds_of_edges=("side", "up"),
    )


def space(seed: int = 0) -> Dict:
    return Dict(
        (
            ("global", Box.of(0, 1, (16, 12, 2), np.uint8)),
            ("graph", GraphSpace.of(graphs(seed))),
            ("local", Box.of(0, 255, (36, 36, 1), np.uint8)),
            ("player", Box.of(-1, 1, (2,))),
            ("state", Box.of(-1, 1, (4,))),
        )
    )


def observations(count: int = 4) -> dict:
    rng = np.random.default_rng(5)
    return {
        "global": jnp.asarray(rng.integers(0, 2, (count, 16, 12, 2)), jnp.uint8),
        "graph": {
            "agent": jnp.arange(count, dtype=jnp.int16) % 3,
            "level": jnp.arange(count, dtype=jnp.int32) % 2,
        },
        "local": jnp.asarray(rng.integers(0, 256, (count, 36, 36, 1)), jnp.uint8),
        "player": jnp.asarray(rng.normal(size=(count, 2)), jnp.float32),
        "state": jnp.asarray(rng.normal(size=(count, 4)), jnp.float32),
    }


each_architecture = pytest.mark.parametrize(
    "name", [name if name == "gat" else pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES]
)


def shape_of(**changes):
    """(shape of the features, number of parameters)."""
    module = build_architecture(dataclasses.replace(NETWORK, **changes), space())
    obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), observations())
    features, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), obs)
    return features.shape, sum(math.prod(x.shape) for x in jax.tree.leaves(variables.get("params", {})))


@each_architecture
def test_every_architecture_has_its_size(name) -> None:
    record = ARCHITECTURES[name]
    size = record.fusion_size or record.state_sizes[-1]
    assert shape_of(architecture=name)[0] == (2, 4, size)


@each_architecture
def test_every_architecture_takes_another_fusion(name) -> None:
    with_others, _ = shape_of(architecture=name, fusion="attention", fusion_size=8)
    assert with_others == (2, 4, 8)


def test_the_table_of_what_each_sees() -> None:
    table = {
        "full_hgt": {"state", "local", "global", "graph"},
        "simplified_hgt": {"state", "local", "global", "graph"},
        "gat": {"state", "graph"},
        "gcn": {"state", "graph"},
        "vision_free": {"state", "graph"},
        "local_only": {"state", "local", "graph"},
        "mlp_baseline": {"state"},
        "impala": {"local"},
        "nature": {"local"},
    }
    assert {name: set(record.sees) for name, record in ARCHITECTURES.items()} == table


@pytest.mark.parametrize("core", ["lstm", pytest.param("gtrxl", marks=pytest.mark.slow)])
def test_a_core_follows_an_architecture(core) -> None:
    network = dataclasses.replace(NETWORK, architecture="gcn", graph_width=4, core=core, core_size=4)
    spec = EnvSpec("test", space(), Discrete(2))
    built = networks.build(network, spec, {"value": HeadOnTrunk(ValueHead(), "policy")})
    params = jax.eval_shape(built.init, jax.random.key(0))
    obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), observations())
    carry, reset = built.initial_carry(4), jnp.zeros((3, 4), bool)
    out = jax.eval_shape(built.apply, params, obs, carry, reset, None)
    assert out.heads["value"].shape == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("sees", [("state",), ("local", "graph"), ("global",), ("state", "graph")])
def test_an_ablation_is_one_field(sees) -> None:
    network = dataclasses.replace(NETWORK, architecture="simplified_hgt", sees=sees)
    module, obs = build_architecture(network, space()), observations()
    params = {"params": jax.jit(module.init)(jax.random.key(0), obs)["params"]}
    apply = jax.jit(module.apply)
    before = apply(params, obs)
    other = {"agent": (obs["graph"]["agent"] + 1) % 3, "level": obs["graph"]["level"]}
    changed = {key: x + 1 for key, x in obs.items() if key != "graph"} | {"graph": other}
    for key in obs:
        moved = np.any(np.asarray(apply(params, obs | {key: changed[key]}) != before))
        assert moved == (("state" if key == "player" else key) in sees)


@pytest.mark.slow
def test_sizes_are_the_fields_of_the_configuration() -> None:
    base = shape_of(architecture="gat")[1]
    for changes in ({"graph_width": 32}, {"graph_layers": 1}, {"state_sizes": (16,)}, {"fusion_size": 32}):
        assert shape_of(architecture="gat", **changes)[1] < base
    network = dataclasses.replace(NETWORK, architecture="gat", graph_heads=2, fusion="gated")
    assert resolve_architecture(network) == dataclasses.replace(
        ARCHITECTURES["gat"], graph_heads=2, fusion="gated"
    )
    with_channels = shape_of(architecture="full_hgt", local_channels=(4,), global_channels=(4,))[1]
    assert with_channels != shape_of(architecture="full_hgt")[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("hgt", marks=pytest.mark.long), "gat", "gcn"])
def test_graphs_prepared_once_give_the_same_numbers(kind) -> None:
    name = {"hgt": "vision_free"}.get(kind, kind)
    network = dataclasses.replace(NETWORK, architecture=name, graph_width=8, graph_heads=2, graph_layers=2)
    spec = EnvSpec("test", space(), Discrete(2))
    built = networks.build(network, spec, {"value": HeadOnTrunk(ValueHead(), "policy")})
    params = jax.jit(built.init)(jax.random.key(0))
    obs = jax.tree.map(lambda x: x[None], observations())
    rest = (built.initial_carry(4), jnp.zeros((1, 4), bool), None)
    value = jax.jit(lambda p: built.apply(p, obs, *rest).heads["value"])
    assert built.prepare is not None
    prepared = jax.jit(built.prepare)(params)
    np.testing.assert_allclose(value(params), value(prepared), rtol=1e-5, atol=1e-6)
    # With other parameters of the graph, what was prepared is what counts.
    changed = jax.tree.map(lambda x: x + 1, params)
    assert np.any(
        np.asarray(value({**changed, **{k: prepared[k] for k in prepared if k not in params}}))
        != np.asarray(value(changed))
    )


def test_networks_without_fixed_graphs_prepare_nothing() -> None:
    spec = EnvSpec("test", space(), Discrete(2))
    heads = {"value": HeadOnTrunk(ValueHead(), "policy")}
    for changes in ({"architecture": "mlp_baseline"}, {"encoder": "player=mlp,state=mlp"}):
        seen = (
            spec
            if "architecture" in changes
            else dataclasses.replace(spec, observation_space=Dict(space().spaces[-2:]))
        )
        assert networks.build(dataclasses.replace(NETWORK, **changes), seen, heads).prepare is None


def test_spaces_of_other_graphs_are_equal_and_told_apart() -> None:
    assert space(0) == space(1)
    assert have_equal_graphs(space(0), space(0))
    assert not have_equal_graphs(space(0), space(1))


@pytest.mark.slow
def test_the_agents_level_and_node_are_what_counts() -> None:
    network = dataclasses.replace(NETWORK, architecture="vision_free", sees=("graph",), graph_width=8)
    module = build_architecture(network, space())
    obs = observations()
    params = {"params": jax.jit(module.init)(jax.random.key(0), obs)["params"]}
    apply = jax.jit(module.apply)
    rows = np.asarray(apply(params, obs))
    again = {"graph": jax.tree.map(lambda x: x[::-1], obs["graph"])}
    np.testing.assert_allclose(apply(params, obs | again), rows[::-1], rtol=1e-6)
    assert not np.allclose(rows[0], rows[1])
    assert not np.allclose(rows[0], rows[2])  # the same level, another node


OWN = Architecture(("state",), state_sizes=(5,), fusion_size=0)


class OwnModule(nn.Module):
    """A user's own."""

    network: object
    space: object

    @nn.compact
    def __call__(self, obs):
        return obs["state"] * 2


def test_ones_own_architecture_is_a_record_or_a_module() -> None:
    # The player's numbers are state as well, in one layer with the rest.
    assert shape_of(architecture=f"{__name__}:OWN") == ((2, 4, 5), (4 + 2) * 5 + 5)
    assert shape_of(architecture=f"{__name__}:OWN", state_sizes=(3,))[0] == (2, 4, 3)
    assert shape_of(architecture=f"{__name__}:OwnModule")[0] == (2, 4, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gatt"}, "is no architecture, nor module:attribute; did you mean `gat`"),
        ({"architecture": "nowhere:Net"}, "`network.architecture` .='nowhere:Net'. cannot be imported"),
        ({"architecture": f"{__name__}:graphs"}, "must be an Architecture, or a flax module"),
        ({"architecture": "gat", "graph_width": 6}, "`network.graph_heads` .=4. must divide"),
        ({"architecture": "gat", "fusion": "gated", "fusion_size": 0}, "needs the fusion concatenate"),
        ({"architecture": "gat", "layer_norm": True}, "`network.layer_norm` .=True. is not offered by"),
    ],
)
def test_what_is_refused(changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        build_architecture(dataclasses.replace(NETWORK, **changes), space())


def test_what_is_not_observed_is_named() -> None:
    network = dataclasses.replace(NETWORK, architecture="local_only")
    with pytest.raises(ConfigError, match="sees state, local, graph; the observation has state: ask"):
        build_architecture(network, Box.of(-1, 1, (3,)))


def test_sizes_need_an_architecture() -> None:
    spec = EnvSpec("test", Box.of(-1, 1, (3,)), Discrete(2))
    network = dataclasses.replace(NETWORK, graph_width=8)
    with pytest.raises(ConfigError, match="`network.graph_width` .=8. changes an architecture: name one"):
        networks.build(network, spec, {"value": HeadOnTrunk(ValueHead(), "policy")})
