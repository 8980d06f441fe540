"""Packing what the steps of a loop store."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.experience.rollout_loop import Packing


def test_every_leaf_comes_back() -> None:
    rng = np.random.default_rng(0)
    steps, count = 3, 5

    def draw(shape: tuple[int, ...], dtype: str) -> jax.Array:
        x = rng.normal(size=(steps, count, *shape)) * 3
        return jnp.asarray(x > 0 if dtype == "bool" else x, dtype)

    tree = {
        "obs": draw((2, 3), "float32"),
        "value": draw((), "float32").at[0, 0].set(jnp.nan),
        "action": draw((), "int32"),
        "done": draw((), "bool"),
        "mask": draw((4,), "bool"),
        "small": draw((2,), "uint8"),
        "image": draw((5, 7), "uint8"),
        "nothing": None,
    }
    packing = Packing.of(jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], tree)))
    _, stored = jax.jit(lambda x: jax.lax.scan(lambda loop, xs: (loop, packing.pack(xs)), 0, x))(tree)
    # One array for each dtype, and the image by itself.
    assert {str(x.dtype): x.shape for x in stored.values() if x.ndim == 3} == {
        "float32": (steps, 7, count),
        "int32": (steps, 1 + 1 + 4, count),
        "uint8": (steps, 2, count),
    }
    assert len(stored) == 4
    unpacked = packing.unpack(stored)
    assert jax.tree.structure(unpacked) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, unpacked, tree)
    assert [x.dtype for x in jax.tree.leaves(unpacked)] == [x.dtype for x in jax.tree.leaves(tree)]
