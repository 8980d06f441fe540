"""Two-player games: the rules, scripted players, and a game as one of its players sees it."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import EnvSpec, JaxEnv


class Game(abc.ABC):
    """The rules of a two-player game, as pure functions of one game; nobody plays in it.

    Seat 0 has the first move, seat 1 the other. Nothing after an end is ever read.

    Attributes:
      spec: name and spaces, alike for both seats; actions are `Discrete`.
      alternates: True if nobody moves twice in a row.
      move_names: of moves that are no cell of the board, such as "pass"; a person may type them.
      load_baseline: loads a published policy of the game, (an observation) -> logits [A]; None without one.
        ValueError, one line, if it is not on this machine.
    """

    spec: EnvSpec
    alternates: bool = True
    move_names: Mapping[int, str] = MappingProxyType({})
    load_baseline: Callable[[], Callable[[Any], jax.Array]] | None = None

    @abc.abstractmethod
    def start(self, key: jax.Array) -> Any:
        """The state before the first move."""

    @abc.abstractmethod
    def play(self, key: jax.Array, state: Any, action: jax.Array) -> Any:
        """The state after a move of the seat whose turn it is; only `action_mask` makes sure it is legal."""

    @abc.abstractmethod
    def seat(self, state: Any) -> jax.Array:
        """int32[], the seat whose turn it is."""

    @abc.abstractmethod
    def observe(self, state: Any, seat: jax.Array) -> Any:
        """The observation of a seat, int32[], at its own turn or another's."""

    @abc.abstractmethod
    def action_mask(self, state: Any) -> jax.Array:
        """bool[A], the moves allowed to the seat whose turn it is; after an end anything."""

    @abc.abstractmethod
    def rewards(self, state: Any) -> jax.Array:
        """float32[2], what the last move gave each seat; a seat whose sum is larger than the other's wins."""

    @abc.abstractmethod
    def ends(self, state: Any) -> tuple[jax.Array, jax.Array]:
        """(terminated, truncated), bool[], see `TimeStep`."""

    def is_over(self, state: Any) -> jax.Array:
        """bool[], whether the game has ended."""
        terminated, truncated = self.ends(state)
        return terminated | truncated

    def leads(self, state: Any) -> jax.Array:
        """float32[2], what the last move gave each seat more than the other: the winner's sum is above 0."""
        rewards = self.rewards(state)
        return rewards - rewards[::-1]

    def choices(self, state: Any) -> jax.Array:
        """`action_mask` if something is allowed, else everything: a policy needs a choice."""
        mask = self.action_mask(state)
        return mask | ~jnp.any(mask)


def game_of(env: JaxEnv) -> Game | None:
    """The game that an environment shows one player of; None if it is no two-player game."""
    return getattr(env, "game", None)
