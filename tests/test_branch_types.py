"""Branches that return different classes are found, which jax does not notice."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import pytest


@flax.struct.dataclass
class Left:
    """One class."""

    x: jax.Array


@flax.struct.dataclass
class Right:
    """Another, with as many fields."""

    y: jax.Array


def test_branches_of_two_classes_are_refused() -> None:
    one = jnp.ones(())
    with pytest.raises(TypeError, match="the branches of `cond` return .*Left.* and .*Right"):
        jax.lax.cond(one > 0, lambda: Left(one), lambda: Right(one))
    with pytest.raises(TypeError, match="the branches of `switch` return "):
        jax.jit(lambda i: jax.lax.switch(i, [lambda: Left(one), lambda: Right(one)]))(0)
    with pytest.raises(TypeError, match="the carry of `scan` is .*Left.* and .*Right"):
        jax.lax.scan(lambda carry, _: (Right(one), None), Left(one), length=2)
    with pytest.raises(TypeError, match="the carry of `while_loop` is .*Left.* and .*Right"):
        jax.lax.while_loop(lambda carry: one > 2, lambda carry: Right(one), Left(one))
    for count in (2, jnp.int32(2)):
        with pytest.raises(TypeError, match="the carry of `fori_loop` is .*Left.* and .*Right"):
            jax.lax.fori_loop(0, count, lambda i, carry: Right(one), Left(one))
    assert jax.lax.cond(one > 0, lambda: Left(one), lambda: Left(-one)).x == 1
    assert jax.lax.fori_loop(0, 2, lambda i, carry: Left(carry.x + 1), Left(one)).x == 3


def test_methods_of_two_objects_stay_apart() -> None:
    class Adder:
        def __init__(self, x: float) -> None:
            self.x = x

        def add(self, carry: jax.Array) -> jax.Array:
            return carry + self.x

    for x in (1.0, 2.0):
        assert jax.lax.while_loop(lambda carry: carry < 2, Adder(x).add, jnp.zeros(())) == 2
        assert jax.lax.cond(True, Adder(x).add, Adder(-x).add, jnp.zeros(())) == x
