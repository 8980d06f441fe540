"""Turns of members: three on two devices, some of which wait, in a process with as many devices."""

from __future__ import annotations

import pytest

from tests import processes

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jaxrl.parallel.sharding import Topology
from jaxrl.population.programs import Placement, Turns

def advance(state, step, count):
    def one(_, s):
        return {"x": s["x"] + step, "key": s["key"], "turns": s["turns"] + 1}
    return jax.lax.fori_loop(0, count, one, state), step * 2, count > 100

def first(i):
    return {"x": jnp.full((5, 3), float(i)), "key": jax.random.key(i), "turns": jnp.int32(0)}

shapes = jax.eval_shape(lambda: (first(0), jnp.float32(0), jnp.int32(0)))
turns = Turns(Placement(3, Topology.of(2)), advance, lambda: shapes)
turns.compile()
states = {i: first(i) for i in range(3)}
for members, count in (((0, 1, 2), 3), ((1,), 2), ((0, 2), 1)):
    arguments = {i: (states[i], jnp.float32(1), jnp.int32(count)) for i in members}
    found = turns.advance(arguments)
    assert set(found) == set(members)
    for i in members:
        states[i], doubled, late = found[i]
        assert float(doubled) == 2.0 and not late
for i, made in enumerate((4, 5, 4)):
    np.testing.assert_array_equal(states[i]["x"], np.full((5, 3), i + made))
    assert int(states[i]["turns"]) == made
    same = jax.random.key_data(states[i]["key"]) == jax.random.key_data(jax.random.key(i))
    assert bool(np.asarray(same).all())
print("devices", len({next(iter(states[i]["x"].devices())).id for i in range(3)}))
"""


@pytest.mark.slow
def test_members_that_wait_change_nothing() -> None:
    ended = processes.succeed("-c", PROGRAM, devices=2)
    assert "devices 2" in ended.stdout
