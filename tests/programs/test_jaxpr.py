"""Operations and arrays of traced programs, counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl.parallel.sharding import SHARDED, Topology
from jaxrl.programs.jaxpr import largest_arrays, matmul_flops


def test_products_count_as_often_as_scans_turn() -> None:
    def f(a: jax.Array, b: jax.Array) -> jax.Array:
        def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return carry @ b, None

        once = a @ b
        return jax.lax.scan(step, once, length=10)[0]

    jaxpr = jax.make_jaxpr(f)(jnp.ones((3, 4)), jnp.ones((4, 4)))
    assert matmul_flops(jaxpr, "cpu") == 11 * 2 * 3 * 4 * 4


def test_batched_products_and_convolutions() -> None:
    f = lambda a, b: jnp.einsum("bij,bjk->bik", a, b)  # noqa: E731
    assert matmul_flops(jax.make_jaxpr(f)(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 7))), "cpu") == (
        2 * 5 * 2 * 3 * 7
    )
    image, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 16))
    conv = lambda x, w: jax.lax.conv_general_dilated(  # noqa: E731
        x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    # Each of 2 x 6 x 6 x 16 results sums 3 x 3 x 3 products.
    assert matmul_flops(jax.make_jaxpr(conv)(image, kernel), "cpu") == 2 * 27 * 2 * 6 * 6 * 16


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_gradients_of_a_convolution_take_as_many_products_as_it_does(padding: str) -> None:
    """Each product of an input and a weight is one of each gradient as well; XLA counts the same."""

    def conv(x: jax.Array, w: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (2, 3), padding, dimension_numbers=layout)

    image, kernel = jnp.ones((2, 9, 12, 3)), jnp.ones((4, 3, 3, 16))
    forward = matmul_flops(jax.make_jaxpr(conv)(image, kernel), "gpu")
    # Along the height, of 3 or 5 windows of 4; along the width, of 4 windows of 3 without a gap.
    height = {"VALID": 3 * 4, "SAME": 3 + 4 + 4 + 4 + 2}[padding]
    assert forward == 2 * 2 * 3 * 16 * height * 12
    for argument in (0, 1):
        gradient = jax.grad(lambda x, w: jnp.sum(conv(x, w)), argument)
        assert matmul_flops(jax.make_jaxpr(gradient)(image, kernel), "gpu") == 2 * forward
    counted: Any = jax.jit(conv).lower(image, kernel).cost_analysis()
    assert counted["flops"] == forward


def test_the_dearest_branch_counts_and_the_own_platform() -> None:
    def f(flag: jax.Array, a: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda a: a @ a @ a, lambda a: a @ a, a)

    assert matmul_flops(jax.make_jaxpr(f)(True, jnp.ones((4, 4))), "cpu") == 2 * 2 * 4**3

    def g(a: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(a, cpu=lambda a: a @ a @ a, default=lambda a: a @ a)

    jaxpr = jax.make_jaxpr(g)(jnp.ones((4, 4)))
    assert matmul_flops(jaxpr, "cpu") == 2 * 2 * 4**3
    assert matmul_flops(jaxpr, "tpu") == 2 * 4**3


def test_largest_arrays_are_those_of_one_device() -> None:
    topology = Topology.of(1)

    def f(x: jax.Array) -> jax.Array:
        outer = x[:, None] * x[None, :]
        return outer.sum(axis=1)

    jaxpr = topology.shard(f, SHARDED, SHARDED).trace(jnp.ones(64)).jaxpr
    largest = largest_arrays(jaxpr, "cpu", 2)
    assert largest[0].type == "f32[64,64]"
    assert largest[0].bytes == 64 * 64 * 4
    assert "test_jaxpr.py" in largest[0].line
    assert largest[1].bytes == 64 * 4
