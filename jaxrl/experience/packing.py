"""Values that each step of a loop stores, packed into few arrays: storing one is a kernel on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# A leaf with more elements per environment than this is a separate array: storing it takes longer than
# launching its kernel, and laying it out anew after the loop would take as long again.
_LARGEST = 32

_Loop = TypeVar("_Loop")


def is_small(x: Array) -> bool:
    """True if an array [B, ...] has few elements per environment."""
    return math.prod(x.shape[1:]) <= _LARGEST


@dataclass(frozen=True)
class _Leaf:
    """The place of a leaf: rows `first` to `last` of the array `name`, or all of it if `last` is None."""

    name: str
    first: int
    last: int | None
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Packing:
    """The arrangement of a tree of leaves [B, ...] in arrays [K, B], one for each dtype.

    Flags are stored as int32, which an action often is.
    """

    leaves: tuple[_Leaf, ...]
    structure: Any

    @classmethod
    def of(cls, tree: PyTree) -> Packing:
        """For trees of these shapes and dtypes."""
        shapes, structure = jax.tree.flatten(tree)
        rows: dict[str, int] = {}
        leaves = []
        for number, x in enumerate(shapes):
            name = _storage_dtype(x.dtype).name
            if not is_small(x):
                leaves.append(_Leaf(f"leaf {number}", 0, None, x.shape[1:], x.dtype))
                continue
            size = math.prod(x.shape[1:])
            first = rows.get(name, 0)
            rows[name] = first + size
            leaves.append(_Leaf(name, first, first + size, x.shape[1:], x.dtype))
        return cls(tuple(leaves), structure)

    def pack(self, tree: PyTree) -> dict[str, Array]:
        """Arrays [K, B] by dtype, and large leaves as they are."""
        parts: dict[str, list[Array]] = {}
        for leaf, x in zip(self.leaves, jax.tree.leaves(tree), strict=True):
            part = x if leaf.last is None else x.reshape(len(x), -1).T.astype(_storage_dtype(leaf.dtype))
            parts.setdefault(leaf.name, []).append(part)
        return {name: part[0] if len(part) == 1 else jnp.concatenate(part) for name, part in parts.items()}

    def pack_outputs(
        self, step: Callable[[_Loop, PyTree], tuple[_Loop, PyTree]]
    ) -> Callable[[_Loop, PyTree], tuple[_Loop, dict[str, Array]]]:
        """The body of a scan whose outputs are packed."""

        def packing_step(loop: _Loop, xs: PyTree) -> tuple[_Loop, dict[str, Array]]:
            after, record = step(loop, xs)
            return after, self.pack(record)

        return packing_step

    def unpack(self, packed: dict[str, Array]) -> PyTree:
        """The tree of leaves [T, B, ...] from arrays [T, K, B] and large leaves [T, B, ...]."""

        def leaf_of(leaf: _Leaf) -> Array:
            x = packed[leaf.name]
            if leaf.last is None:
                return x
            rows = x[:, leaf.first : leaf.last].swapaxes(1, 2).astype(leaf.dtype)
            return rows.reshape(*rows.shape[:2], *leaf.shape)

        return jax.tree.unflatten(self.structure, [leaf_of(leaf) for leaf in self.leaves])


def _storage_dtype(dtype: Any) -> Any:
    return jnp.dtype(jnp.int32 if dtype == jnp.bool_ else dtype)
