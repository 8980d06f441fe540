"""From the leaves that `jaxrl.envs.host.worker.describe` lists to the spaces of `jaxrl.envs.base`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, Mixed, MultiDiscrete, Space
from jaxrl.envs.host.worker import Leaf, integers
from jaxrl.envs.names import unknown

_MOST_CHOICES = 256  # of an integer of an action


def leaf_name(leaf: Leaf) -> str:
    """The key of a leaf in a flattened dict: `camera.left`, or the position in a tuple."""
    return ".".join(str(key) for key in leaf["path"])


def select_leaves(label: str, leaves: list[Leaf], keys: Sequence[str]) -> list[Leaf]:
    """The leaves with these names, or all; ValueError if there is no such leaf."""
    leaves = observed_leaves(leaves)
    names = [leaf_name(leaf) for leaf in leaves]
    for key in keys:
        if key not in names:
            raise unknown(f"observation of {label}", key, names)
    return [leaf for leaf, name in zip(leaves, names, strict=True) if not keys or name in keys]


def observed_leaves(leaves: list[Leaf]) -> list[Leaf]:
    """The leaves of an observation without the parts in which there is nothing to see."""
    return [leaf for leaf in leaves if math.prod(leaf["shape"]) or not leaf["path"]]


def observation_space(leaves: list[Leaf]) -> Space:
    """One space, or, if there are several leaves, a flat dict of them, sorted by name."""
    if len(leaves) == 1 and not leaves[0]["path"]:
        return space_of(leaves[0])
    return Dict(
        tuple(sorted(((leaf_name(leaf), space_of(leaf)) for leaf in leaves), key=lambda part: part[0]))
    )


def observation_tree(leaves: list[Leaf], arrays: list[Any]) -> Any:
    """One value per leaf, e.g. its array, in the structure of `observation_space(leaves)`."""
    if len(leaves) == 1 and not leaves[0]["path"]:
        return arrays[0]
    return dict(sorted(zip(map(leaf_name, leaves), arrays, strict=True)))


def action_leaf(parts: list[Leaf]) -> Leaf:
    """The leaf of an action space: its only one, or a "mixed" one of its parts."""
    parts = [_with_inner_bounds(_as_choices(part)) for part in parts]
    if len(parts) == 1 and not parts[0]["path"]:
        return parts[0]
    size = sum(math.prod(part["shape"]) for part in parts)
    return {"path": (), "kind": "mixed", "shape": (size,), "stored": "float32", "parts": parts}


def _as_choices(leaf: Leaf) -> Leaf:
    """A vector of few integers in a Box as the choices that they are: no policy has a density of them."""
    if leaf["kind"] != "box" or np.dtype(leaf["dtype"]).kind not in "iu" or len(leaf["shape"]) != 1:
        return leaf
    low, high = (np.array(leaf[side], np.int64) for side in ("low", "high"))
    few = (high - low < _MOST_CHOICES).all()
    return leaf | integers("multi_discrete", low, high, leaf["dtype"]) if few else leaf


def _with_inner_bounds(leaf: Leaf) -> Leaf:
    """A Box of float64 with bounds that float32 holds; actions at rounded ones might lie outside of it."""
    if leaf["kind"] != "box" or leaf["dtype"] != "float64":
        return leaf
    low, high = _bounds(leaf)
    inf = np.float32(np.inf)
    least, most = low.astype(np.float32), high.astype(np.float32)
    least = np.where(least < low, np.nextafter(least, inf), least)
    most = np.where(most > high, np.nextafter(most, -inf), most)
    holds = least <= most  # else float32 has no number between them
    return leaf | {"low": np.where(holds, least, low), "high": np.where(holds, most, high)}


def action_space(leaf: Leaf) -> Box | Discrete | MultiDiscrete | Mixed:
    """The space of an `action_leaf`; ValueError if a part cannot be chosen."""
    if leaf["kind"] != "mixed":
        return space_of(leaf)
    chosen = [part for part in leaf["parts"] if math.prod(part["shape"])]
    return Mixed(tuple((leaf_name(part), space_of(part)) for part in chosen))


def space_of(leaf: Leaf) -> Box | Discrete | MultiDiscrete:
    """The space of one leaf, in the dtype that is handed on; ValueError if it has no parts."""
    if leaf["kind"] in ("dict", "tuple"):
        raise ValueError(f"a {leaf['kind']} without parts")
    if leaf["kind"] == "discrete":
        return Discrete(leaf["high"] - leaf["low"] + 1, start=leaf["start"])
    if leaf["kind"] == "multi_discrete":
        counts, start = (tuple(map(int, x)) for x in (leaf["high"] - leaf["low"] + 1, leaf["start"]))
        return MultiDiscrete(counts, start=start)
    low, high = _bounds(leaf)
    return Box.of(low, high, leaf["shape"], np.dtype(leaf["stored"]).type)


def _bounds(leaf: Leaf) -> tuple[np.ndarray, np.ndarray]:
    """Bounds, with infinity if a suite writes the largest (or by mistake the smallest positive) number."""
    low = np.array(leaf["low"], np.float64)
    high = np.array(leaf["high"], np.float64)
    if np.dtype(leaf["dtype"]).kind != "f":
        return low, high
    limits = np.finfo(np.float32)
    open_above = high >= limits.max
    smallest = [np.finfo(kind).tiny for kind in (np.float32, np.float64)]
    open_below = (low <= -limits.max) | (open_above & np.isin(low, smallest))
    return np.where(open_below, -np.inf, low), np.where(open_above, np.inf, high)
