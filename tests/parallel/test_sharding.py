"""Layout over devices; what several devices compute is tested in tests/multi_device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.config import ConfigError
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, specs
from jaxrl.types import Axis, TrainState, Trajectory


def test_axis_without_a_name_is_one_device() -> None:
    axis = Axis()
    assert (axis.size, axis.index()) == (1, 0)
    assert axis.psum({"x": 3}) == {"x": 3}


def test_more_devices_than_there_are() -> None:
    count = jax.device_count() + 1
    with pytest.raises(ConfigError, match=f"`num_devices` \\(={count}\\) is more than this machine has"):
        Topology.of(count)


def test_named_axis_sums_and_counts() -> None:
    topology = Topology.of(1)
    assert topology.axis.size == 1
    sums = topology.shard(
        lambda x: topology.axis.psum((x + topology.axis.index()).sum()), SHARDED, REPLICATED
    )
    assert sums(jnp.arange(4)) == 6
    assert "psum" not in str(jax.make_jaxpr(sums)(jnp.arange(4)))  # XLA for CPU copies what it sums


def test_donated_argument_is_gone() -> None:
    topology = Topology.of(1)
    increment = topology.shard(lambda x, y: x + y, (SHARDED, REPLICATED), SHARDED, donate=True)
    x, y = topology.replicate((jnp.zeros(4), jnp.ones(())))
    np.testing.assert_array_equal(increment(x, y), np.ones(4))
    assert x.is_deleted()
    assert not y.is_deleted()


def test_abstract_state_carries_shardings() -> None:
    topology = Topology.of(1)
    tree = {"a": {"deep": jax.ShapeDtypeStruct((2, 3), jnp.int8)}, "b": None}
    abstract = topology.abstract(tree, {"a": SHARDED, "b": REPLICATED})
    leaf = abstract["a"]["deep"]
    assert (leaf.shape, leaf.dtype, leaf.sharding.spec) == ((2, 3), jnp.int8, SHARDED)
    assert abstract["b"] is None  # a normaliser that is off


def test_every_field_has_a_layout() -> None:
    # A field without one would be None, and shard_map would refuse the state with a message about trees.
    state, trajectory = specs(TrainState, learner=specs(RolloutState)), specs(Trajectory)
    layouts = vars(state) | vars(state.learner) | vars(trajectory)
    del layouts["learner"]
    assert all(isinstance(layout, PartitionSpec) for layout in layouts.values())
