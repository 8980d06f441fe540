"""Parts that all memories share which replay from a ring."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayFeedback, ReplayPlan
from jaxrl.experience.memory import Memory
from jaxrl.experience.replay import draws, priorities, priority_tree, ring
from jaxrl.experience.replay.places import Places
from jaxrl.experience.replay.ring import Ring
from jaxrl.types import Array, Trajectory


@dataclass(frozen=True)
class RingMemory(Memory):
    """Keeps the last rows of every environment; subclasses decide how to sample them."""

    plan: ReplayPlan

    state_type: Any = Ring

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.checkpointed

    @property
    @abc.abstractmethod
    def hidden(self) -> int:
        """The newest items of each environment that may not be sampled yet, at most."""

    @abc.abstractmethod
    def places(self, state: Ring) -> Places:
        """The items that may be sampled: neither the newest, `hidden`, nor the oldest `plan.unseen` rows."""

    @abc.abstractmethod
    def with_new(self, state: Ring, trajectory: Trajectory, leaf: Array, first: int, new: Array) -> Array:
        """The leaves of a rollout and of its neighbours.

        Args:
          state: with the rows of the rollout, and its cursor.
          trajectory: the rollout.
          leaf: float32[B, N], of neighbouring items before it.
          first: which of them is the rollout's first.
          new: float32[], for each new item that may be sampled.
        """

    def add(self, state: Ring, trajectory: Trajectory) -> Ring:
        length = len(trajectory.reward)
        tree = state.tree
        after = dataclasses.replace(
            state,
            rows=ring.write_rows(state.rows, trajectory, state.cursor),
            cursor=(state.cursor + length) % state.size,
            count=jnp.minimum(state.count + length, state.size),
        )
        if tree is None:
            return after
        was = self.places(state)
        now = self.places(after)
        interval = state.size // now.size
        new = priorities.leaf_of_new(self.plan.axis.gather(tree.max()).max())
        unseen = -(-self.plan.unseen // interval)
        begin = state.cursor // interval
        items, first = priority_tree.window(now.size, begin, self.hidden, length // interval, unseen)
        leaf = self.with_new(after, trajectory, tree.at(items), first, new)
        return dataclasses.replace(after, tree=priority_tree.write(tree, items, leaf, was, now))

    def feedback(self, state: Ring, feedback: ReplayFeedback) -> Ring:
        where = (feedback.env, feedback.row)
        places = self.places(state)
        return dataclasses.replace(
            state,
            tree=draws.with_errors(self.plan, state.tree, places, where, feedback.error, feedback.usable),
            draws=state.draws + feedback.ready.astype(jnp.int32),
        )


def of_latest(latest: Trajectory) -> dict[str, Any]:
    """`latest_reward`, `latest_steps` and `latest_noted` of a batch, float32[]."""
    noted = sum(x.mean() for x in jax.tree.leaves(latest.extras))
    # Nothing is rewarded in a row that is no step.
    return {"latest_reward": latest.reward.sum(), "latest_steps": latest.steps, "latest_noted": noted}


def follows(terminated: Array, reset_after: Array) -> Array:
    """True if the row after a step is its successor, or if none is needed.

    If a restart of the environment was forced, the row after is the first of another episode, and the
    observation after the step is lost.

    Args:
      terminated: bool[...], of the steps.
      reset_after: bool[...], `reset` of the rows after them.
    """
    return terminated | ~reset_after


def counted_steps(terminated: Array, reset: Array, valid: Array) -> Array:
    """bool[K, N], the steps of n-step returns from the first row of each window; row m is what follows them.

    A window ends after a termination; after a truncation, whose final observation is the next row and not
    `valid`; and before a step without a successor.

    Args:
      terminated, reset, valid: bool[K + 1, N], of consecutive rows.
    """
    known = valid[:-1] & follows(terminated[:-1], reset[1:])
    goes_on = jnp.concatenate([jnp.ones_like(known[:1]), ~terminated[:-2]])
    return jnp.cumprod((known & goes_on).astype(jnp.int32), axis=0).astype(bool)
