"""Policies of several runs that act together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from jaxrl.config import ConfigError
from jaxrl.inference.ensemble_function import EnsembleFunction
from jaxrl.inference.loaded_policy import LoadedPolicy, action_program


class EnsemblePolicy:
    """The policies of several runs, of the same spaces; networks and algorithms may differ.

    Of discrete actions it takes the one of the highest mean log-probability, or of the highest mean Q-value;
    continuous ones are the mean of the members' actions. All members act in one program.

        policy = jaxrl.load(["runs/a", "runs/b", "runs/c"])
        action, carry = policy.act(obs, carry)

    Attributes:
      spec: of the first member's environment.
    """

    def __init__(self, members: Sequence[LoadedPolicy]) -> None:
        """Raises ConfigError if there are none, or if they do not fit together."""
        self.members = tuple(members)
        self._function = EnsembleFunction.of([member.function for member in members])
        self.spec = self._function.spec

    def initial_carry(self, batch: int | None = None) -> tuple[Any, ...]:
        """The carry of each member at the start of an episode."""
        return tuple(member.initial_carry(batch) for member in self.members)

    def act(
        self, obs: Any, carry: Any = None, reset: Any = None, *, action_mask: Any = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Chooses actions at `obs`; arguments and results as in `LoadedPolicy.act`.

        Raises:
          ConfigError: something has the wrong shape or type.
        """
        carries = (None,) * len(self.members) if carry is None else carry
        if not isinstance(carries, tuple) or len(carries) != len(self.members):
            raise ConfigError("`carry` must be what `act` returned, or None")
        each = [
            member.arguments(obs, one, reset, action_mask)
            for member, one in zip(self.members, carries, strict=True)
        ]
        single, (obs_B, _, *rest) = each[0]
        carry_B = {f"member_{i}": given[1] for i, (_, given) in enumerate(each)}
        action, after = jax.device_get(self._program(obs_B, carry_B, *rest))
        carries = tuple(after[name] for name in carry_B)
        return (action[0], jax.tree.map(lambda x: x[0], carries)) if single else (action, carries)

    @functools.cached_property
    def _program(self) -> Any:
        return action_program(self._function)
