"""Spaces from the leaves that `jaxrl.envs.host.worker.describe` lists, and those that agents share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, Mixed, MultiDiscrete, Space
from jaxrl.envs.host.answers import choices_of
from jaxrl.envs.host.worker import Leaf, integers
from jaxrl.envs.names import unknown

_MOST_CHOICES = 256  # of an integer of an action
_OBSERVATION = "observation"  # what is observed, by PettingZoo's convention, beside a mask of actions


def leaf_name(leaf: Leaf) -> str:
    """The key of a leaf in a flattened dict: `camera.left`, or the position in a tuple."""
    return ".".join(str(key) for key in leaf["path"])


def select_leaves(label: str, leaves: list[Leaf], keys: Sequence[str]) -> list[Leaf]:
    """The leaves with these names, or all; ValueError if there is no such leaf."""
    leaves = observed_leaves(leaves)
    return [leaves[i] for i in _places(f"observation of {label}", leaves, keys)]


def _places(what: str, leaves: list[Leaf], keys: Sequence[str]) -> list[int]:
    names = [leaf_name(leaf) for leaf in leaves]
    for key in keys:
        if key not in names:
            raise unknown(what, key, names)
    return [i for i, name in enumerate(names) if not keys or name in keys]


def observed_leaves(leaves: list[Leaf]) -> list[Leaf]:
    """The leaves of an observation without the parts in which there is nothing to see."""
    return [leaf for leaf in leaves if math.prod(leaf["shape"]) or not leaf["path"]]


def observation_space(leaves: list[Leaf]) -> Space:
    """One space, or, if there are several leaves, a flat dict of them, sorted by name."""
    if len(leaves) == 1 and not leaves[0]["path"]:
        return space_of(leaves[0])
    return Dict(tuple((leaf_name(leaf), space_of(leaf)) for leaf in sorted(leaves, key=leaf_name)))


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


@dataclass(frozen=True)
class AgentSpaces:
    """Spaces of A agents in a fixed order: as the policy sees them, and each agent's own.

    Of own observations there is a leaf for each of `obs_leaves`; shorter vectors are padded by zeros.
    """

    obs_leaves: list[Leaf]
    action_leaf: Leaf
    obs_by_agent: dict[Any, list[Leaf]]
    action_by_agent: dict[Any, Leaf]

    @classmethod
    def of(
        cls, obs: Mapping[Any, list[Leaf]], actions: Mapping[Any, list[Leaf]], keys: Sequence[str]
    ) -> AgentSpaces:
        """The common spaces of agents with these leaves; ValueError if they cannot share a policy.

        `keys` are the names of the leaves to keep, all if empty; ValueError if there is no such leaf.
        """
        obs = {agent: observed_leaves(leaves) for agent, leaves in obs.items()}
        shown = {agent: _without_wrapping(leaves) for agent, leaves in obs.items()}
        kept = {agent: _places("observation", leaves, keys) for agent, leaves in shown.items()}
        own_actions = {agent: action_leaf(parts) for agent, parts in actions.items()}
        return cls(
            obs_leaves=_common_observation({a: [shown[a][i] for i in kept[a]] for a in shown}),
            action_leaf=_common_action(own_actions),
            obs_by_agent={agent: [obs[agent][i] for i in kept[agent]] for agent in obs},
            action_by_agent=own_actions,
        )

    @property
    def differ_in_choices(self) -> bool:
        """True if some agents have fewer actions than others."""
        return len({sum(choices_of([leaf])) for leaf in self.action_by_agent.values()}) > 1


def _without_wrapping(leaves: list[Leaf]) -> list[Leaf]:
    """With paths without `observation` in front, if there is nothing else."""
    inside = all(leaf["path"][:1] == (_OBSERVATION,) for leaf in leaves)
    return [leaf | {"path": leaf["path"][1:]} for leaf in leaves] if inside else leaves


def _common_observation(obs: Mapping[Any, list[Leaf]]) -> list[Leaf]:
    columns = list(zip(*obs.values(), strict=True)) if len({len(x) for x in obs.values()}) == 1 else []
    if columns and all(_is_alike(column) for column in columns):
        return [_widest(column, column[0]["shape"]) for column in columns]
    if len(columns) == 1 and _are_vectors(columns[0]):
        return [_widest(columns[0], max(leaf["shape"] for leaf in columns[0]))]
    here = _in_words({agent: ", ".join(map(_words, leaves)) for agent, leaves in obs.items()})
    raise ValueError(f"agents that share a policy observe vectors, or all the same; here {here}")


def _common_action(actions: Mapping[Any, Leaf]) -> Leaf:
    leaves = list(actions.values())
    if all(leaf["kind"] == "discrete" for leaf in leaves):
        most = max(leaf["high"] - leaf["low"] for leaf in leaves)
        # Agents with numberings of their own have none in common: their policy's is from 0.
        start = leaves[0]["start"] if len({leaf["start"] for leaf in leaves}) == 1 else 0
        return leaves[0] | {"low": start, "high": start + most, "start": start}
    if any(_plain(leaf) != _plain(leaves[0]) for leaf in leaves):
        here = _in_words({agent: _words(leaf) for agent, leaf in actions.items()})
        raise ValueError(f"agents that share a policy have the same actions, or numbers of them; here {here}")
    return leaves[0]


def _is_alike(column: Sequence[Leaf]) -> bool:
    """True if the leaves differ in nothing but the bounds of boxes."""
    if column[0]["kind"] != "box":
        return all(_plain(leaf) == _plain(column[0]) for leaf in column)
    return _are_equal(column, "path", "kind", "shape", "stored")


def _are_vectors(column: Sequence[Leaf]) -> bool:
    are_vectors = all(leaf["kind"] == "box" and len(leaf["shape"]) == 1 for leaf in column)
    return are_vectors and _are_equal(column, "path", "stored")


def _are_equal(column: Sequence[Leaf], *keys: str) -> bool:
    return all(leaf[key] == column[0][key] for leaf in column for key in keys)


def _widest(column: Sequence[Leaf], shape: tuple[int, ...]) -> Leaf:
    """A leaf of that shape whose bounds hold for every agent, and for the zeros behind shorter vectors."""
    if column[0]["kind"] != "box":
        return column[0]

    def padded(bound: np.ndarray) -> np.ndarray:
        return bound if bound.shape == shape else np.pad(bound, (0, shape[0] - len(bound)))

    low = np.minimum.reduce([padded(leaf["low"]) for leaf in column])
    high = np.maximum.reduce([padded(leaf["high"]) for leaf in column])
    return column[0] | {"shape": shape, "low": low, "high": high}


def _plain(leaf: Leaf) -> Any:
    if leaf["kind"] == "mixed":
        return [_plain(part) for part in leaf["parts"]]
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in leaf.items()}


def _words(leaf: Leaf) -> str:
    if leaf["kind"] == "discrete":
        return f"Discrete({leaf['high'] - leaf['low'] + 1})"
    if leaf["kind"] == "multi_discrete":
        return f"MultiDiscrete{(leaf['high'] - leaf['low'] + 1).tolist()}"
    if leaf["kind"] == "mixed":
        return f"a mixed one of {math.prod(leaf['shape'])} numbers"
    low = np.min(leaf["low"])
    high = np.max(leaf["high"])
    return f"{leaf['stored']}{list(leaf['shape'])} in [{low:g}, {high:g}]"


def _in_words(said: Mapping[Any, str]) -> str:
    """Two agents that differ, and what they have."""
    (first, one), *others = said.items()
    other, two = next(((agent, x) for agent, x in others if x != one), (first, one))
    return f"{first} has {one} and {other} {two}"
