"""Scatters written as selections, against JAX's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxrl.envs import registry
from jaxrl.envs.scatters import without_scatters
from jaxrl.envs.vector import VectorEnv
from jaxrl.types import Array, PyTree

NAMES = ("set", "add", "subtract", "multiply", "min", "max")


def count_scatters(function: Callable[..., Any], *arguments: Array) -> int:
    return str(jax.make_jaxpr(function)(*arguments)).count(" = scatter")


def check(function: Callable[..., Any], *rows: Array, left: int = 0) -> None:
    """For each row of arguments equal to the last bit, alone and under `vmap`, and without scatters."""
    written = without_scatters(function)
    first = [x[0] for x in rows]
    assert count_scatters(function, *first) > 0
    assert count_scatters(written, *first) == left
    both = lambda *x: (function(*x), written(*x))  # noqa: E731
    alone = jax.jit(both)
    for i in range(len(rows[0])):
        same(*alone(*(x[i] for x in rows)))
    same(*jax.jit(jax.vmap(both))(*rows))


def same(expected: Array, found: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.weak_type == expected.weak_type
    # The bits: 0 and -0 differ, a NaN is one.
    np.testing.assert_array_equal(np.asarray(found).view(np.uint8), np.asarray(expected).view(np.uint8))


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "float32":
        found = rng.choice([-0.0, 0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 3e38], shape)
        return jnp.asarray(found, jnp.float32)
    return jnp.asarray(rng.integers(0, 2, shape), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("clip", "float32"), ("drop", "float32"), ("promise_in_bounds", "float32"), ("clip", "bool")],
)
def test_updates_at_indices_inside_and_out_of_bounds(mode: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    # Two indices that are equal, and all that are out of bounds on either side.
    at = jnp.array([[1, 1, 0], [-3, 2, 1], [4, 3, 2], [-5, -4, -3], [2**31 - 1, -(2**31), 5]])
    x, row, one = (values(rng, (len(at), *shape), dtype) for shape in ((4, 3, 2), (3, 2), ()))

    def updated(x: Array, at: Array, row: Array, one: Array) -> Array:
        found = []
        for name in ("set", "min") if dtype == "bool" else NAMES:
            write = lambda key, y, name=name: getattr(x.at[key], name)(y, mode=mode)  # noqa: E731
            found += [write(at[0], row), write((at[0], at[1]), row[0]), write(tuple(at), one)]
            found += [write((at[0], slice(None), at[1]), one), write((slice(None), at[1], 1), one)]
            found += [write(slice(1, 3), one), write(at, row), write((at, 1), one), write((at, at), row[0])]
        return jnp.stack(found)

    check(updated, x, at, row, one)


@pytest.mark.parametrize("mode", [lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP])
@pytest.mark.parametrize("dtype", ["int8", "uint32"])
def test_windows_that_reach_out_of_bounds(mode: lax.GatherScatterMode, dtype: str) -> None:
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (1, 0))
    at = jnp.array(list(itertools.product((0, 2, 3, 5, -1), repeat=2))).astype(dtype)
    x = jnp.broadcast_to(jnp.arange(20.0).reshape(4, 5), (len(at), 4, 5))
    update = jnp.broadcast_to(-jnp.arange(1.0, 7.0).reshape(2, 3), (len(at), 2, 3))
    check(lambda x, at, update: lax.scatter_add(x, at, update, numbers, mode=mode), x, at, update)


def test_scatters_of_a_batch_within_an_environment() -> None:
    def batch(x: Array, at: Array, y: Array) -> Array:
        found = jax.vmap(lambda x, at, y: x.at[at].set(y))(x, at, y)
        return found + jax.vmap(lambda x: x.at[at[0]].add(y[1]), in_axes=1, out_axes=1)(x.T).T

    x = jnp.arange(24).reshape(2, 3, 4)
    at = jnp.array([[[1, 3], [0, 0], [7, 2]], [[2, 1], [-9, 3], [1, 1]]])
    check(batch, x, at, 5 + jnp.arange(12).reshape(2, 3, 2))


@pytest.mark.slow
def test_scatters_in_loops_and_branches() -> None:
    def nested(x: Array, i: Array) -> Array:
        x = jax.jit(lambda x: x.at[i].set(1.0))(x)
        x = lax.cond(i > 1, lambda x: x.at[i - 1].add(2.0), lambda x: x.at[i + 1].min(-2.0), x)
        x = lax.scan(lambda x, j: (x.at[j].mul(3.0), None), x, jnp.arange(3))[0]
        write = lambda loop: (loop[0].at[i].add(5.0), loop[1] + 1)  # noqa: E731
        return lax.while_loop(lambda loop: loop[1] < i, write, (x, 0))[0]

    check(nested, jnp.arange(15.0).reshape(3, 5), jnp.array([0, 2, 9]))


def test_large_scatters_and_those_of_functions_or_keys_stay() -> None:
    at = jnp.array([[3, 4]])
    check(lambda x, i: x.at[i[0]].set(1.0), jnp.zeros((1, 1025)), at, left=1)
    check(lambda x, i: x.at[i].set(1.0), jnp.zeros((1, 20)), jnp.arange(17)[None], left=1)
    check(lambda x, i: x.at[i[0]].apply(jnp.sin), jnp.ones((1, 4)), at, left=1)
    keys = lambda x, i: jax.random.key_data(jax.random.split(x).at[i].set(x))  # noqa: E731
    assert count_scatters(without_scatters(keys), jax.random.key(0), jnp.int32(1)) > 0


@pytest.mark.slow
def test_games_are_the_same_without_scatters() -> None:
    env = registry.make("gymnax:Breakout-MinAtar", ())
    keys = jax.random.split(jax.random.key(0), 16)

    def play(few_kernels: bool) -> tuple[PyTree, str]:
        batch = VectorEnv(env, few_kernels=few_kernels)

        def step(state: PyTree, t: Array) -> tuple[PyTree, PyTree]:
            at = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
            action = jax.vmap(lambda key: jax.random.randint(key, (), 0, 3))(at)
            return batch.step(at, state, action, batch.starts(at))

        program = jax.jit(lambda: lax.scan(step, batch.reset(keys)[0], jnp.arange(64))).trace()
        return program.lower().compile()(), str(program.jaxpr)

    (expected, traced), (found, traced_few) = (play(few) for few in (False, True))
    assert expected[1].done.any()
    assert (" = scatter" in traced, " = scatter" in traced_few) == (True, False)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
