"""Times two forms of the linear recurrence on this machine's device: a loop and an associative scan.

    python benchmarks/linear_recurrence.py

Times the recurrence of a minGRU, forwards and backwards, from gates to gradients of gates, without its matrix
product; nanoseconds per element, the best of half a second. `jaxrl/networks/kernels/linear_recurrence.py`
chooses by platform; docs/performance.md has the results on CPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.kernels.linear_recurrence import linear_recurrence, parallel, sequential

# Time steps, environments, units.
SHAPES = ((16, 128, 128), (32, 64, 64), (64, 32, 128), (128, 8, 64), (128, 16, 128), (128, 128, 128))
FORMS: dict[str, Callable[..., tuple[jax.Array, ...]]] = {
    "loop": partial(linear_recurrence, form=sequential),
    "loop, autodiff": sequential,
    "associative": partial(linear_recurrence, form=parallel),
    "associative, autodiff": parallel,
}


def main() -> int:
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; ns per element")
    print(f"{'L, N, H':14}", *(f"{name:>22}" for name in FORMS))
    for shape in SHAPES:
        row = [seconds(form, *shape) / np.prod(shape) * 1e9 for form in FORMS.values()]
        print(f"{', '.join(map(str, shape)):14}", *(f"{x:22.2f}" for x in row), flush=True)
    return 0


def seconds(form: Callable[..., tuple[jax.Array, ...]], length: int, n: int, size: int) -> float:
    """Of one pass forwards and backwards."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    gates, h, weights = normal(length, n, 2 * size), normal(n, size), normal(length, n, size)
    reset = jnp.asarray(rng.random((length, n)) < 0.05)

    @jax.jit
    def both(gates: jax.Array, h: jax.Array) -> tuple[jax.Array, ...]:
        def forwards(gates: jax.Array, h: jax.Array) -> jax.Array:
            z, x = jnp.split(gates, 2, axis=-1)
            z = jax.nn.sigmoid(z)
            return form((1 - z,), (z * x,), (h,), reset)[0]

        y, backwards = jax.vjp(forwards, gates, h)
        return y, *backwards(weights)

    jax.block_until_ready(both(gates, h))
    best, ends = np.inf, time.perf_counter() + 0.5
    while time.perf_counter() < ends:
        started = time.perf_counter()
        jax.block_until_ready(both(gates, h))
        best = min(best, time.perf_counter() - started)
    return best


if __name__ == "__main__":
    sys.exit(main())
