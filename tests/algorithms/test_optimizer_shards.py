"""The optimiser's parts of a vector, on an axis of `vmap` in the place of devices, and as TPUs compile it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.optimizer import OptimizerShards
from jaxrl.config import PPOConfig
from jaxrl.parallel import tpu_slices
from jaxrl.parallel.sharding import REPLICATED, Topology
from jaxrl.types import Array, Axis

COUNT, DEVICES = 5000, 3
SHARDS = OptimizerShards(Axis("data", DEVICES), COUNT, sharded=True)


def on_devices(fn: Callable[[Array], Array], *vectors: np.ndarray) -> np.ndarray:
    """[devices, ...] of fn(the vector of each device)."""
    return np.asarray(jax.vmap(fn, axis_name="data")(jnp.stack(vectors)))


def test_parts_together_are_the_vector() -> None:
    vector = np.arange(COUNT, dtype=np.float32)
    parts = on_devices(lambda x: SHARDS.own(SHARDS.pad(x)), *[vector] * DEVICES)
    assert parts.shape == (DEVICES, 2048)  # whole tiles
    np.testing.assert_array_equal(parts.ravel()[:COUNT], vector)
    assert not parts.ravel()[COUNT:].any()
    whole = on_devices(SHARDS.whole, *parts)
    np.testing.assert_array_equal(whole, np.broadcast_to(parts.ravel(), whole.shape))
    assert SHARDS.empty().shape == parts[0].shape


def test_a_part_of_the_sum_is_the_sum_of_the_part() -> None:
    vectors = np.random.default_rng(0).integers(-9, 9, (DEVICES, COUNT)).astype(np.float32)
    found = on_devices(lambda x: SHARDS.axis.scatter_sum(SHARDS.pad(x)), *vectors)
    np.testing.assert_array_equal(found.ravel()[:COUNT], vectors.sum(axis=0))


def test_a_tree_of_a_vector() -> None:
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.float32(7.0), "c": jnp.arange(4.0)}
    flat, _ = jax.flatten_util.ravel_pytree(tree)
    for sharded in (True, False):
        shards = OptimizerShards(SHARDS.axis, flat.size, sharded)
        jax.tree.map(np.testing.assert_array_equal, shards.unravel(tree)(shards.pad(flat)), tree)


@pytest.mark.parametrize(
    ("wanted", "devices", "count", "sharded"),
    [
        ("auto", 2, 2**20, True),
        ("auto", 2, 2**20 - 1, False),
        ("on", 2, 100, True),
        ("off", 2, 2**20, False),
        ("on", 1, 2**20, False),
    ],
)
def test_when_it_is_divided(wanted: str, devices: int, count: int, sharded: bool) -> None:
    section = PPOConfig(shard_optimizer=wanted)
    assert OptimizerShards.of(section, Axis("data", devices), count).sharded is sharded


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, which compiles for TPUs, is not installed: pip install -e '.[tpu]', or run .ci/run",
)
def test_a_narrow_leaf_takes_no_more_than_itself_on_a_tpu() -> None:
    # Its offset and the length of the vector are even; reshaped as the leaf, the vector of 8 MiB has 264.
    tree = {"a": jnp.zeros(2048), "b": jnp.zeros((1024, 2)), "c": jnp.zeros(2158592)}
    topology = Topology.on(tpu_slices.parse("v5e:2x2").devices())
    count = sum(x.size for x in tree.values())
    unravel = OptimizerShards(topology.axis, count, sharded=False).unravel(tree)
    shapes = (jax.ShapeDtypeStruct((512, 1024), jnp.float32), jax.ShapeDtypeStruct((count,), jnp.float32))
    program = topology.shard(lambda x, flat: x @ unravel(flat)["b"], (REPLICATED,) * 2, REPLICATED)
    arguments = [topology.abstract(shape, REPLICATED) for shape in shapes]
    assert program.lower(*arguments).compile().memory_analysis().temp_size_in_bytes < 8 * count
