"""Parts that all memories share which replay from a ring."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayFeedback, ReplayPlan
from jaxrl.experience.memory.base import Memory
from jaxrl.experience.replay import draws, priorities, ring
from jaxrl.experience.replay.ring import Ring
from jaxrl.types import Array, Trajectory


@dataclass(frozen=True)
class RingMemory(Memory):
    """Keeps the last rows of every environment; what is drawn from them is a memory's own.

    Attributes:
      plan: what the algorithm asked for.
    """

    plan: ReplayPlan

    state_type: Any = Ring

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.checkpointed

    @abc.abstractmethod
    def with_new(self, state: Ring, trajectory: Trajectory, new: Array) -> Array:
        """`Ring.leaf` with the leaves of a rollout, `new` float32[] for each item that may be drawn."""

    def add(self, state: Ring, trajectory: Trajectory) -> Ring:
        length, leaf = len(trajectory.reward), state.leaf
        if leaf is not None:
            new = priorities.leaf_of_new(self.plan.axis.gather(leaf.max()).max())
            leaf = self.with_new(state, trajectory, new)
        return dataclasses.replace(
            state,
            rows=ring.written(state.rows, trajectory, state.cursor),
            leaf=leaf,
            cursor=(state.cursor + length) % state.size,
            count=jnp.minimum(state.count + length, state.size),
        )

    def feedback(self, state: Ring, feedback: ReplayFeedback) -> Ring:
        where = (feedback.env, feedback.row)
        return dataclasses.replace(
            state,
            leaf=draws.with_errors(self.plan, state.leaf, where, feedback.error, feedback.usable),
            draws=state.draws + feedback.ready.astype(jnp.int32),
        )


def latest_means(latest: Trajectory) -> dict[str, Any]:
    """`latest_reward` and `latest_noted` of a draw, float32[]."""
    noted = sum(x.mean() for x in jax.tree.leaves(latest.extras))
    return {"latest_reward": latest.reward.mean(), "latest_noted": noted}
