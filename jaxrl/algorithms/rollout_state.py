"""The state of learners from rollouts, and the statistics in it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.agent import quantities
from jaxrl.algorithms.minibatches import MinibatchState
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.mixture import task_of
from jaxrl.networks import normalizer
from jaxrl.types import Array, Axis, PyTree, Sharded, Transferable


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
    obs = quantities(spec.observation_space, obs)
    return normalizer.update(stats, obs, valid, axis.psum, task)


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
