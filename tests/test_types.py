"""The types of the trainer: marks on fields, and what is taken back of a failed iteration."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.parallel.bulk import keep_before_if, without_bulk
from jaxrl.types import Bulk, Sharded, marks


@flax.struct.dataclass
class Rows:
    """A memory of many rows, with a cursor."""

    rows: Annotated[Any, Bulk(), Sharded(0)]
    cursor: jax.Array
    name: str = flax.struct.field(pytree_node=False, default="rows")


@flax.struct.dataclass
class Outer:
    """Something that has a memory in it, and something that has none."""

    memory: Any
    count: jax.Array
    nothing: Any = None


def outer(x: float) -> Outer:
    rows = {"obs": jnp.full((4, 2), x), "none": None}
    others = (Rows(jnp.full(3, x), jnp.int32(x)), jnp.float32(x))
    memory = {"first": Rows(rows, jnp.int32(x)), "others": others}
    return Outer(memory, jnp.float32(x))


def test_marks_are_found_by_kind() -> None:
    assert marks(Rows, Bulk) == {"rows": Bulk()}
    assert marks(Rows, Sharded) == {"rows": Sharded(0)}
    assert marks(Outer, Bulk) == {}


def test_rows_of_large_memories_are_left_out() -> None:
    found = without_bulk((outer(1.0), [jnp.ones(2)]))
    first, (second, number) = found[0].memory["first"], found[0].memory["others"]
    assert first.rows is None
    assert second.rows is None
    assert (first.cursor, second.cursor, number, found[0].count) == (1, 1, 1, 1)
    assert first.name == "rows"
    without = (Outer(jnp.ones(1), jnp.ones(2)), {"x": None})
    assert without_bulk(without) is without


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, [x])], ids=["alone", "in a tree"])
def test_only_bulk_rows_are_kept_of_a_failed_iteration(failed: bool, branch: bool, wrap: Any) -> None:
    choose = jax.jit(functools.partial(keep_before_if, branch=branch))
    found = choose(jnp.asarray(failed), wrap(outer(1.0)), wrap(outer(2.0)))
    assert jax.tree.structure(found) == jax.tree.structure(wrap(outer(2.0)))
    for each in jax.tree.leaves(found, is_leaf=lambda x: isinstance(x, Outer)):
        rest = 1.0 if failed else 2.0
        assert each.count == rest
        assert each.nothing is None
        first, (second, number) = each.memory["first"], each.memory["others"]
        assert (first.cursor, second.cursor, number) == (rest, rest, rest)
        np.testing.assert_array_equal(first.rows["obs"], jnp.full((4, 2), 2.0))
        np.testing.assert_array_equal(second.rows, jnp.full(3, 2.0))
        assert first.name == "rows"


@pytest.mark.parametrize("branch", [False, True])
def test_bulk_rows_are_not_copied(branch: bool) -> None:
    # Nothing is computed of them: what comes out is what came in.
    before, after = (Rows(jnp.full(1000, x), jnp.int32(x)) for x in (0, 1))
    jaxpr = jax.make_jaxpr(functools.partial(keep_before_if, branch=branch))(jnp.asarray(True), before, after)
    assert not [eqn for eqn in jaxpr.eqns if any(x.aval.size == 1000 for x in eqn.outvars)]
    assert jaxpr.jaxpr.outvars[0] is jaxpr.jaxpr.invars[3]


@pytest.mark.parametrize("branch", [False, True])
def test_what_did_not_change_is_not_copied(branch: bool) -> None:
    def keep(failed: Any, same: Any, old: Any, new: Any) -> Any:
        return keep_before_if(failed, {"same": same, "x": old}, {"same": same, "x": new}, branch)

    arguments = jnp.asarray(True), jnp.ones(1000), jnp.ones(3), jnp.zeros(3)
    jaxpr = jax.make_jaxpr(keep)(*arguments).jaxpr
    assert jaxpr.outvars[0] is jaxpr.invars[1]
    np.testing.assert_array_equal(keep(*arguments)["x"], jnp.ones(3))


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("branch", [False, True])
def test_without_bulk_everything_is_chosen(failed: bool, branch: bool) -> None:
    before = {"key": jax.random.key(0), "x": Outer(None, jnp.arange(3)), "n": None}
    after = {"key": jax.random.key(1), "x": Outer(None, jnp.arange(3) + 1), "n": None}
    found, expected = keep_before_if(jnp.asarray(failed), before, after, branch), before if failed else after
    assert jax.random.key_data(found["key"]).tolist() == jax.random.key_data(expected["key"]).tolist()
    np.testing.assert_array_equal(found["x"].count, expected["x"].count)


def foreign(x: float) -> Any:
    """The state of somebody's environment, whose annotations say what only a type checker knows."""

    @flax.struct.dataclass
    class State:
        x: OnlyForTheTypeChecker  # type: ignore[name-defined]  # noqa: F821

    return State(jnp.float32(x))


def test_annotations_of_others_need_not_be_importable() -> None:
    before = foreign(1.0)
    after = before.replace(x=jnp.float32(2))
    assert keep_before_if(jnp.asarray(True), before, after).x == 1.0
    memory = Rows(jnp.zeros(2), jnp.int32(0))
    found = keep_before_if(jnp.asarray(True), (before, memory), (after, memory.replace(cursor=jnp.int32(1))))
    assert (found[0].x, found[1].cursor) == (1.0, 0)
