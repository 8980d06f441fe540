"""Small operations on trees of arrays that adapters, wrappers and batching share."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class TimedState:
    """The state of a wrapped environment, and int32[], the steps of this episode so far."""

    env: Any
    time: jax.Array


def strong_types(tree: Any) -> Any:
    """Turns leaves into arrays without weak types.

    A Python number in a freshly reset state is weakly typed and becomes strongly typed with the first
    arithmetic on it. A program compiled for the first kind of state does not fit the second: `jit` would
    compile everything a second time, an ahead-of-time executable would refuse.
    """

    def strong(x: Any) -> jax.Array:
        array = jnp.asarray(x)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):  # typed keys know no weak types
            return array
        return array.astype(array.dtype) if array.weak_type else array

    return jax.tree.map(strong, tree)


def select_rows(mask_B: jax.Array, on_true: Any, on_false: Any) -> Any:
    """Takes row `b` of each leaf [B, ...] from `on_true` where `mask_B[b]` is True, else from `on_false`."""

    def select(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(mask_B.reshape(mask_B.shape + (1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(select, on_true, on_false)
