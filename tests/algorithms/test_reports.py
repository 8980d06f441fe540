"""Reports of updates, packed as one vector."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.reports import PackedReports


def test_every_report_comes_back_from_nested_loops() -> None:
    loss = jnp.array([[1.5, jnp.nan, -2.0], [0.0, jnp.inf, 1e-30]])

    def reports(x):
        return {"made": x > 0, "loss": x, "skipped": jnp.zeros((), bool), "rate": x * 2}

    def inner(carry, x):
        return carry, PackedReports.of(reports(x))

    def outer(carry, row):
        return jax.lax.scan(inner, carry, row)

    _, packed = jax.jit(lambda x: jax.lax.scan(outer, 0, x))(loss)
    assert packed.values.shape == (2, 3, 4)
    expected = jax.vmap(jax.vmap(reports))(loss)
    unpacked = packed.unpack()
    assert list(unpacked) == ["made", "loss", "skipped", "rate"]
    for name, x in expected.items():
        assert unpacked[name].dtype == x.dtype
        np.testing.assert_array_equal(unpacked[name], x)
