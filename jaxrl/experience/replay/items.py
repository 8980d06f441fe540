"""Items of the buffers for custom loops: arrays of them, and the checks of what is added."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


def empty(example: PyTree, capacity: int) -> PyTree:
    """Zeros [capacity, ...] for items like `example`, a tree of arrays.

    Raises:
      ValueError: it holds none.
    """
    if not jax.tree.leaves(example):
        raise ValueError("the example of an item must hold an array")
    arrays = jax.tree.map(jnp.asarray, example)
    return jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), arrays)


def check_batch(items: PyTree, batch: PyTree) -> tuple[PyTree, int]:
    """(a batch as arrays [N, ...], N), for the arrays [capacity, ...] of the items before it.

    Raises:
      ValueError: the batch has other parts, shapes or dtypes, or does not fit.
    """
    _require_parts(items, batch)
    arrays = jax.tree.map(jnp.asarray, batch)
    capacity = len(jax.tree.leaves(items)[0])
    paths, found = zip(*jax.tree_util.tree_leaves_with_path(arrays), strict=True)
    for path, x, kept in zip(paths, found, jax.tree.leaves(items), strict=True):
        name = jax.tree_util.keystr(path)
        if x.ndim == 0 or x.shape[1:] != kept.shape[1:]:
            wanted = ", ".join(["N", *map(str, kept.shape[1:])])
            raise ValueError(f"`batch{name}` has the shape {list(x.shape)}; it must be [{wanted}]")
        if x.dtype != kept.dtype:
            raise ValueError(f"`batch{name}` is {x.dtype}; it must be {kept.dtype}, as in the buffer")
    sizes = sorted({len(x) for x in found})
    if len(sizes) > 1:
        raise ValueError(f"the arrays of a batch must be equally long, not {', '.join(map(str, sizes))}")
    if sizes[0] > capacity:
        raise ValueError(f"{sizes[0]} items do not fit in a buffer of `capacity` (={capacity})")
    if sizes[0] == 0:
        raise ValueError("a batch must hold an item")
    return arrays, sizes[0]


def write_items(items: PyTree, index: Array, batch: PyTree) -> PyTree:
    """The items with a batch [N, ...] at `index`, int32[N] different places."""
    return jax.tree.map(lambda x, y: x.at[index].set(y, unique_indices=True), items, batch)


def _require_parts(items: PyTree, batch: PyTree) -> None:
    wanted, found = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        for tree in (items, batch)
    )
    missing = [x for x in wanted if x not in found]
    unknown = [x for x in found if x not in wanted]
    if missing:
        raise ValueError(f"a batch must have {', '.join(f'`{x}`' for x in missing)}, as the buffer has")
    if unknown:
        raise ValueError(f"a batch has {', '.join(f'`{x}`' for x in unknown)}, which the buffer has not")
    kept, given = map(str, (jax.tree.structure(items), jax.tree.structure(batch)))
    if kept != given:
        raise ValueError(f"a batch is a {given}; it must be a {kept}, as in the buffer")
