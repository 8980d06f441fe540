"""Arrays without elements do not go into the part of a program that each device runs.

XLA in jaxlib 0.11.2 would end the process if they did. These tests look at the traced program, and compile
for one device alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from jaxrl.parallel.sharding import SHARDED, Topology, shard_map

TWO = AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,))
WHOLE = np.zeros((0, 3), np.float32)


def paint(x: jax.Array) -> jax.Array:
    """A constant without elements: the indices of a whole array."""
    return jnp.zeros((2, 3)).at[:, :].set(x)


def join(x: jax.Array, state: dict[str, Any]) -> dict[str, Any]:
    """Arguments without elements."""
    rows = jnp.concatenate([x, state["rows"]])
    return {"rows": rows, "columns": state["columns"], "whole": rows.sum() + jnp.asarray(WHOLE).sum()}


SPECS = (SHARDED, {"rows": P(), "columns": SHARDED})
RESULTS = {"rows": SHARDED, "columns": SHARDED, "whole": P()}
ARGUMENTS = (
    jnp.arange(12.0).reshape(4, 3),
    {"rows": jnp.zeros((0, 3)), "columns": jnp.zeros((4, 0), jnp.int8)},
)


def operands(fn: Any, *args: Any) -> list[tuple[int, ...]]:
    """The shapes of what goes into a program's only shard_map."""
    program = jax.make_jaxpr(fn)(*args)
    (found,) = [x for x in program.jaxpr.eqns if x.primitive.name == "shard_map"]
    return [x.aval.shape for x in found.invars]


def test_a_constant_is_made_inside() -> None:
    assert operands(shard_map(paint, TWO, P(), SHARDED), jnp.ones(3)) == [(3,)]


def test_arguments_are_made_inside() -> None:
    assert operands(shard_map(join, TWO, SPECS, RESULTS), *ARGUMENTS) == [(4, 3)]
    found = jax.eval_shape(shard_map(join, TWO, SPECS, RESULTS), *ARGUMENTS)
    assert found["columns"] == jax.ShapeDtypeStruct((4, 0), jnp.int8)


def test_computes_the_same() -> None:
    topology = Topology.of(1)
    expected = join(*ARGUMENTS)
    found = topology.shard(join, SPECS, RESULTS)(*topology.replicate(ARGUMENTS))
    assert found["columns"].dtype == jnp.int8
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(topology.shard(paint, P(), SHARDED)(jnp.arange(3.0)), [[0, 1, 2]] * 2)


def test_a_program_keeps_its_name() -> None:
    """Profiles and dumps show it."""
    lowered = Topology.of(1).shard(paint, P(), SHARDED).lower(jnp.ones(3))
    assert "module @jit_paint" in lowered.as_text()
