"""The rows of large memories (`jaxrl.types.Bulk`): on the devices they are neither rolled back nor copied."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Bulk, PyTree, marks


def keep_before_if(failed: Array, before: PyTree, after: PyTree, branch: bool = False) -> PyTree:
    """`before` where `failed`, else `after`; rows of large memories (`Bulk`) always come from `after`.

    Dataclasses in the trees may have marks. `branch` chooses whole trees by a condition, instead of each
    array by a separate kernel.
    """

    def choose(old: PyTree, new: PyTree) -> PyTree:
        news, structure = jax.tree.flatten(new)
        olds = structure.flatten_up_to(old)  # type: ignore[attr-defined]
        changed = [i for i, pair in enumerate(zip(olds, news, strict=True)) if pair[0] is not pair[1]]
        # An array that is the same on both sides would be copied.
        pairs = [olds[i] for i in changed], [news[i] for i in changed]
        if branch:
            kept = jax.lax.cond(failed, lambda: pairs[0], lambda: pairs[1])
        else:
            kept = jax.tree.map(lambda x, y: jnp.where(failed, x, y), *pairs)
        for i, x in zip(changed, kept, strict=True):
            news[i] = x
        return jax.tree.unflatten(structure, news)

    return _by_part(lambda old, new: new, choose, before, after)


def without_bulk(tree: PyTree) -> PyTree:
    """The tree with None for the rows of large memories (`Bulk`); itself if it has none."""
    return _by_part(lambda rows: None, lambda part: part, tree)


def _by_part(bulk: Callable[..., PyTree], other: Callable[..., PyTree], *trees: PyTree) -> PyTree:
    """A tree of `bulk` of the rows of large memories, and `other` of the largest parts without any."""
    last = trees[-1]
    if not _has_bulk(last):
        return other(*trees)
    if not dataclasses.is_dataclass(last):
        inner = functools.partial(_by_part, bulk, other)
        return jax.tree.map(inner, *trees, is_leaf=dataclasses.is_dataclass)
    marked = marks(type(last), Bulk)
    names = [field.name for field in dataclasses.fields(last) if field.metadata.get("pytree_node", True)]
    found = {}
    for name in names:
        parts = [getattr(tree, name) for tree in trees]
        found[name] = bulk(*parts) if name in marked else _by_part(bulk, other, *parts)
    return dataclasses.replace(last, **found)  # type: ignore[type-var]


def _has_bulk(tree: PyTree) -> bool:
    """True if a dataclass anywhere in a tree has rows of a large memory."""
    if dataclasses.is_dataclass(tree):
        values = [getattr(tree, field.name) for field in dataclasses.fields(tree)]
        return bool(marks(type(tree), Bulk)) or any(map(_has_bulk, values))
    inner = jax.tree.leaves(tree, is_leaf=dataclasses.is_dataclass)
    return any(dataclasses.is_dataclass(x) and _has_bulk(x) for x in inner)
