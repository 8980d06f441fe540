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
    assert jax.lax.cond(one > 0, lambda: Left(one), lambda: Left(-one)).x == 1
