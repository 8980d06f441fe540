"""Policies of several runs that act together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Discrete, MultiDiscrete
from jaxrl.inference.loaded_policy import LoadedPolicy


class EnsemblePolicy:
    """The policies of several runs, of the same spaces; networks and algorithms may differ.

    Of discrete actions it takes the one of the highest mean probability, or of the highest mean Q-value;
    continuous ones are the mean of the members' actions.

        policy = jaxrl.load(["runs/a", "runs/b", "runs/c"])
        action, carry = policy.act(obs, carry)

    Attributes:
      members: the policies.
      spec: of the first member's environment.
    """

    def __init__(self, members: Sequence[LoadedPolicy]) -> None:
        """Raises ConfigError if there are none, or if they do not fit together."""
        if not members:
            raise ConfigError("`run` (=[]) must name a run")
        self.members = tuple(members)
        self.spec = members[0].spec
        if not isinstance(self.spec.action_space, Discrete | MultiDiscrete | Box):
            raise ConfigError("an action of several parts has no mean: load one run")
        spaces = [(m.spec.observation_space, m.spec.action_space, m.spec.has_action_mask) for m in members]
        for member, found in zip(members, spaces, strict=True):
            if found != spaces[0]:
                names = f"{member.spec.name} and {self.spec.name}"
                raise ConfigError(f"the runs must have the same spaces and wrappers; they have {names}")

    def initial_carry(self, batch: int | None = None) -> tuple[Any, ...]:
        """The carry of each member at the start of an episode."""
        return tuple(member.initial_carry(batch) for member in self.members)

    def act(
        self, obs: Any, carry: Any = None, reset: Any = None, *, action_mask: Any = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Chooses what to do at `obs`; arguments and results as those of `LoadedPolicy.act`.

        Raises:
          ConfigError: something has the wrong shape or type, or one member has Q-values and another
            probabilities.
        """
        carries = (None,) * len(self.members) if carry is None else carry
        if not isinstance(carries, tuple) or len(carries) != len(self.members):
            raise ConfigError("`carry` must be what `act` returned, or None")
        judged = [
            member.judge(obs, one, reset, action_mask=action_mask)
            for member, one in zip(self.members, carries, strict=True)
        ]
        single = self.members[0].is_single(obs)
        action = self._combined(judged)
        after = tuple(found["carry"] for found in judged)
        if not single:
            return action, after
        return action[0], jax.tree.map(lambda x: x[0], after)

    def _combined(self, judged: list[dict[str, Any]]) -> np.ndarray:
        space = self.spec.action_space
        if isinstance(space, Box):
            mean = np.mean([found["action"] for found in judged], axis=0)
            return mean.astype(judged[0]["action"].dtype)
        assert isinstance(space, Discrete | MultiDiscrete)
        kinds = {kind for found in judged for kind in found["distribution"]}
        if len(kinds) > 1:
            raise ConfigError("runs of Q-values and runs of probabilities have no common mean")
        (kind,) = kinds
        sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        ends = np.cumsum(sizes)[:-1]
        parts = [np.split(found["distribution"][kind], ends, axis=-1) for found in judged]
        chosen = [
            np.mean([x if kind == "q" else _probabilities(x) for x in part], axis=0).argmax(axis=-1)
            for part in zip(*parts, strict=True)
        ]
        action = chosen[0] if isinstance(space, Discrete) else np.stack(chosen, axis=-1)
        return action.astype(judged[0]["action"].dtype)


def _probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found: np.ndarray = shifted / shifted.sum(axis=-1, keepdims=True)
    return found
