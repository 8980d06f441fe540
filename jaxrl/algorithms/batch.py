"""Learning from rollouts: the part of a trajectory that a loss reads, the state, the statistics in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.minibatches import MinibatchState
from jaxrl.algorithms.sequences import Sequences, take_carries, take_sequences
from jaxrl.config import ConfigError
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.mixture import task_of
from jaxrl.networks import normalizer, task_normalizer
from jaxrl.types import Array, Axis, PyTree, Sharded, Trajectory, Transferable


@flax.struct.dataclass
class Batch:
    """Leaves [T, B, ...], in a minibatch [L, N, ...].

    Attributes:
      obs: as the network sees them.
      reset, action, action_mask, valid: as in a `Trajectory`.
      carry: the one before each sequence, [T / L, B, ...], in a minibatch [N, ...].
      weight: as in a `Trajectory`.
      rows: by name, float32[T, B] arrays of the algorithm: advantages, targets, extras of the trajectory.
    """

    obs: PyTree
    reset: Array
    action: Array
    action_mask: Array | None
    valid: Array | None
    carry: PyTree
    rows: dict[str, Array]
    weight: Array | None = None

    @classmethod
    def of(cls, trajectory: Trajectory, seen: PyTree, rows: Mapping[str, Array]) -> Batch:
        """A whole trajectory, with its observations as the network saw them."""
        valid = trajectory.valid
        # Rows that do not count may hold anything, and the gradient of `where` lets a NaN pass.
        clean = {name: x if valid is None else jnp.where(valid, x, 0.0) for name, x in rows.items()}
        return cls(
            obs=seen,
            reset=trajectory.reset,
            action=trajectory.action,
            action_mask=trajectory.action_mask,
            valid=valid,
            carry=trajectory.carry,
            rows=clean,
            weight=trajectory.weight,
        )

    def take(self, sequences: Sequences, length: int) -> Batch:
        """The steps of these sequences; see `sequences.take_sequences`."""
        steps = dataclasses.replace(self, carry=None)
        taken: Batch = take_sequences(steps, sequences, length)
        return dataclasses.replace(taken, carry=take_carries(self.carry, sequences))

    def total(self, x: Array) -> Array:
        """float32[], the sum over the steps that count of x [L, N], by their weights if they have some.

        Raises:
          ConfigError: x is not one number for each step. A mean would be divided by the steps once more.
        """
        if jnp.shape(x) != self.reset.shape:
            raise ConfigError(
                f"a loss or a metric has the shape {list(jnp.shape(x))}; it must have one number for each "
                f"step and sequence of a minibatch, {list(self.reset.shape)}, which are averaged afterwards"
            )
        if self.weight is not None:
            x = x * self.weight
        return x.sum() if self.valid is None else jnp.where(self.valid, x, 0.0).sum()


@flax.struct.dataclass
class RolloutState(MinibatchState):
    """The state of learners from rollouts.

    Attributes:
      reward_stats: running moments of the discounted return, or None.
      discounted_return: float32[B], accumulator for reward scaling.
    """

    reward_stats: Annotated[PyTree, Transferable()]
    discounted_return: Annotated[Array, Sharded(0)]


def with_observations(stats: PyTree, spec: EnvSpec, obs: PyTree, valid: Array | None, axis: Axis) -> PyTree:
    """Running moments with the observations of all devices; of each task its own.

    Args:
      stats: of `Agent.init`.
      spec: of the environment.
      obs: [T, B, *O], of this device.
      valid: bool[T, B], the rows that count; None: all.
      axis: this device.
    """
    task = task_of(spec, obs)
    if task is None:
        return normalizer.update(stats, obs, valid, axis.psum)
    return task_normalizer.update(stats, obs, task, valid, axis.psum)


def with_finite_statistics(before: Any, after: Any) -> Any:
    """`after` with the statistics of `before` where new ones are not finite, and no such memory."""

    def sound(old: PyTree, new: PyTree) -> PyTree:
        finite = jnp.isfinite(sum(jnp.sum(x) for x in jax.tree.leaves(new)))
        return jax.tree.map(lambda x, y: jnp.where(finite, y, x), old, new)

    obs_stats = sound(before.policy.obs_stats, after.policy.obs_stats)
    discounted = after.discounted_return
    return dataclasses.replace(
        after,
        policy=dataclasses.replace(after.policy, obs_stats=obs_stats),
        reward_stats=sound(before.reward_stats, after.reward_stats),
        discounted_return=jnp.where(jnp.isfinite(discounted), discounted, jnp.zeros_like(discounted)),
    )
