"""The rows of large memories (`jaxrl.types.Bulk`): on the devices they are neither rolled back nor copied."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Bulk, PyTree, marks


def keep_before_if(failed: Array, before: PyTree, after: PyTree, branch: bool = False) -> PyTree:
    """`before` where `failed`, else `after`; rows of large memories (`Bulk`) always come from `after`.

    Args:
      failed: bool[].
      before, after: trees of the same structure; dataclasses in them may have marks.
      branch: chooses whole trees by a condition, instead of each array by a separate kernel.
    """
    keep = lambda old, new: jnp.where(failed, old, new)  # noqa: E731
    if not _has_bulk(after):
        if branch:
            return jax.lax.cond(failed, lambda: before, lambda: after)
        return jax.tree.map(keep, before, after)
    if not dataclasses.is_dataclass(after):
        whole = lambda x: x is not after and dataclasses.is_dataclass(x)  # noqa: E731
        return jax.tree.map(
            lambda old, new: keep_before_if(failed, old, new, branch), before, after, is_leaf=whole
        )
    bulk = marks(type(after), Bulk)
    names = [field.name for field in dataclasses.fields(after) if field.metadata.get("pytree_node", True)]
    chosen = {
        name: getattr(after, name)
        if name in bulk
        else keep_before_if(failed, getattr(before, name), getattr(after, name), branch)
        for name in names
    }
    return dataclasses.replace(after, **chosen)  # type: ignore[type-var]


def without_bulk(tree: PyTree) -> PyTree:
    """The tree with None for the rows of large memories (`Bulk`); itself if it has none."""
    if not _has_bulk(tree):
        return tree
    if not dataclasses.is_dataclass(tree):
        whole = lambda x: x is not tree and dataclasses.is_dataclass(x)  # noqa: E731
        return jax.tree.map(without_bulk, tree, is_leaf=whole)
    bulk = marks(type(tree), Bulk)
    names = [field.name for field in dataclasses.fields(tree) if field.metadata.get("pytree_node", True)]
    kept = {name: None if name in bulk else without_bulk(getattr(tree, name)) for name in names}
    return dataclasses.replace(tree, **kept)  # type: ignore[type-var]


def _has_bulk(tree: PyTree) -> bool:
    """True if a dataclass anywhere in a tree has rows of a large memory."""
    if dataclasses.is_dataclass(tree):
        values = [getattr(tree, field.name) for field in dataclasses.fields(tree)]
        return bool(marks(type(tree), Bulk)) or any(map(_has_bulk, values))
    inner = jax.tree.leaves(tree, is_leaf=lambda x: x is not tree and dataclasses.is_dataclass(x))
    return any(dataclasses.is_dataclass(x) and _has_bulk(x) for x in inner)
