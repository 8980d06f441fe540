"""The common spaces of agents of one policy, from each agent's spaces in a host environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.envs.host.masks import choices_of
from jaxrl.envs.host.spaces import action_leaf, leaf_name, observed_leaves
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.names import unknown

_OBSERVATION = "observation"  # what is observed, by PettingZoo's convention, beside a mask of actions


@dataclass(frozen=True)
class AgentSpaces:
    """Spaces of A agents in a fixed order.

    Attributes:
      obs_leaves: of the observation that the policy sees.
      action_leaf: of the action that it chooses.
      obs_by_agent: of each agent's own observation, one for each of `obs_leaves`; shorter vectors are padded
        by zeros.
      action_by_agent: the leaf of each agent's own action.
    """

    obs_leaves: list[Leaf]
    action_leaf: Leaf
    obs_by_agent: dict[Any, list[Leaf]]
    action_by_agent: dict[Any, Leaf]

    @classmethod
    def of(
        cls, obs: Mapping[Any, list[Leaf]], actions: Mapping[Any, list[Leaf]], keys: Sequence[str]
    ) -> AgentSpaces:
        """The common spaces.

        Args:
          obs: the leaves of each agent's observation.
          actions: the leaves of each agent's action.
          keys: the names of the leaves to keep; all if empty.

        Raises:
          ValueError: agents with these spaces cannot share a policy, or there is no such leaf.
        """
        obs = {agent: observed_leaves(leaves) for agent, leaves in obs.items()}
        shown = {agent: [leaf | {"path": _seen_path(leaves, leaf)} for leaf in leaves]
                 for agent, leaves in obs.items()}  # fmt: skip
        kept = {agent: _select(leaves, keys) for agent, leaves in shown.items()}
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


def _seen_path(leaves: list[Leaf], leaf: Leaf) -> tuple[Any, ...]:
    """Without `observation` in front, if there is nothing else."""
    inside = all(x["path"][:1] == (_OBSERVATION,) for x in leaves)
    return leaf["path"][1:] if inside else leaf["path"]


def _select(leaves: list[Leaf], keys: Sequence[str]) -> list[int]:
    """The places of the leaves to keep."""
    names = [leaf_name(leaf) for leaf in leaves]
    for key in keys:
        if key not in names:
            raise unknown("observation", key, names)
    return [i for i, name in enumerate(names) if not keys or name in keys]


def _common_observation(obs: Mapping[Any, list[Leaf]]) -> list[Leaf]:
    columns = list(zip(*obs.values(), strict=True)) if len({len(x) for x in obs.values()}) == 1 else []
    if columns and all(_is_alike(column) for column in columns):
        return [_widest(column, column[0]["shape"]) for column in columns]
    if len(columns) == 1 and _are_vectors(columns[0]):
        return [_widest(columns[0], max(leaf["shape"] for leaf in columns[0]))]
    raise ValueError(
        "agents that share a policy observe vectors, or all the same; here "
        + _in_words({agent: ", ".join(map(_words, leaves)) for agent, leaves in obs.items()})
    )


def _common_action(actions: Mapping[Any, Leaf]) -> Leaf:
    leaves = list(actions.values())
    if all(leaf["kind"] == "discrete" for leaf in leaves):
        most = max(leaf["high"] - leaf["low"] for leaf in leaves)
        # Agents with numberings of their own have none in common: their policy's is from 0.
        start = leaves[0]["start"] if len({leaf["start"] for leaf in leaves}) == 1 else 0
        return leaves[0] | {"low": start, "high": start + most, "start": start}
    if any(_plain(leaf) != _plain(leaves[0]) for leaf in leaves):
        raise ValueError(
            "agents that share a policy have the same actions, or numbers of them; here "
            + _in_words({agent: _words(leaf) for agent, leaf in actions.items()})
        )
    return leaves[0]


def _is_alike(column: Sequence[Leaf]) -> bool:
    """True if the leaves differ in nothing but the bounds of boxes."""
    first = column[0]
    if first["kind"] == "box":
        same = ("path", "kind", "shape", "stored")
        return all(leaf[key] == first[key] for leaf in column for key in same)
    return all(_plain(leaf) == _plain(first) for leaf in column)


def _are_vectors(column: Sequence[Leaf]) -> bool:
    return all(
        leaf["kind"] == "box"
        and len(leaf["shape"]) == 1
        and leaf["path"] == column[0]["path"]
        and leaf["stored"] == column[0]["stored"]
        for leaf in column
    )


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
    """A leaf that can be compared."""
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
