"""The players of the other seat in each environment, and how all choose their moves at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.types import Acting, Array, PyTree


@flax.struct.dataclass
class Turn:
    """The view of opponents before their move; leaves [B, ...].

    Attributes:
      obs: of their seats.
      mask: bool[B, A], the allowed moves.
      carry: their recurrent carries before it.
      reset: bool[B], True if it is the first observation of their game.
      noise: of `Agent.draw_noise`.
    """

    obs: PyTree
    mask: Array
    carry: PyTree
    reset: Array
    noise: PyTree


@dataclass(frozen=True)
class Seats:
    """The groups of environments that share one opponent each.

    Environment i, counted over all devices, is of group i modulo `latest + pooled`. So each device has the
    same number of environments of each group, and what it computes does not depend on how many devices there
    are.

    Attributes:
      agent: acts, with the parameters of each opponent.
      latest: groups whose opponent is the policy as it is now; the first ones.
      pooled: groups whose opponents are snapshots.
    """

    agent: Agent
    latest: int
    pooled: int

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.latest + self.pooled

    def of_groups(self, x_G: Array, count: int) -> Array:
        """[B], what each of `count` environments of this device has of its group."""
        return jnp.tile(x_G, (count // self.groups, *[1] * (x_G.ndim - 1)))

    def over_groups(self, x_B: Array) -> Array:
        """[G, ...], sums over the environments of each group on this device."""
        return x_B.reshape(-1, self.groups, *x_B.shape[1:]).sum(axis=0)

    def move(self, now: Acting, snapshots: Acting, turn: Turn) -> tuple[Array, PyTree]:
        """The moves [B] of all opponents, and their carries after them.

        One product for all environments that play the policy as it is now, and a batched one for the others:
        the parameters of a snapshot are there once for each group, never for each environment.

        Args:
          snapshots: of each pooled group, leaves [pooled, ...].
        """
        rows = jax.tree.map(lambda x: x.reshape(-1, self.groups, *x.shape[1:]), turn)
        parts = []
        if self.latest:
            own = jax.tree.map(lambda x: x[:, : self.latest].reshape(-1, *x.shape[2:]), rows)
            moved = self._choose(now, own)
            parts.append(jax.tree.map(lambda x: x.reshape(-1, self.latest, *x.shape[1:]), moved))
        if self.pooled:
            theirs = jax.tree.map(lambda x: x[:, self.latest :], rows)
            choose: Callable[..., Any] = jax.vmap(self._choose, in_axes=(0, 1), out_axes=1)
            parts.append(choose(snapshots, theirs))
        joined = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *parts)
        action, carry = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), joined)
        return action, carry

    def _choose(self, acting: Acting, turn: Turn) -> tuple[Array, PyTree]:
        out = self.agent.forward(acting, turn.obs, turn.carry, turn.reset, turn.mask)
        action, _ = self.agent.choose(out, turn.noise)
        return self.agent.to_env(action), out.carry
