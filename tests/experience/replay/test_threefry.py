"""Threefry beside the numbers of its authors and those of `jax.random`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.replay import sampling


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_authors_examples(
    key: tuple[int, int], counter: tuple[int, int], expected: tuple[int, int]
) -> None:
    # Random123's known answers for threefry2x32, 20 rounds.
    words = [jnp.uint32(x) for x in (*key, *counter)]
    assert tuple(map(int, jax.jit(sampling.threefry)(*words))) == expected


@pytest.mark.parametrize("shape", [*(pytest.param(x, marks=pytest.mark.slow) for x in ((), (7,))), (4, 2, 5)])
def test_the_numbers_of_jax(shape: tuple[int, ...]) -> None:
    for seed in (0, 5):
        key = jax.random.fold_in(jax.random.key(seed), 3)
        bits, uniform = (jax.jit(f, static_argnums=1)(key, shape) for f in (sampling.bits, sampling.uniform))
        np.testing.assert_array_equal(bits, jax.random.bits(key, shape, jnp.uint32))
        np.testing.assert_array_equal(uniform, jax.random.uniform(key, shape))


def test_keys_of_another_kind() -> None:
    key = jax.random.key(1, impl="rbg")
    np.testing.assert_array_equal(sampling.bits(key, (5,)), jax.random.bits(key, (5,), jnp.uint32))
