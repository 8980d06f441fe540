"""Rewards as learners take them: over the standard deviation of the discounted return, and clipped."""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms.advantage import discounted_returns
from jaxrl.config import NormalizeConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.networks import normalizer
from jaxrl.types import Array, Axis, PyTree, Trajectory


@flax.struct.dataclass
class ScaledRewards:
    """Rewards to learn from, and the statistics with this rollout in them.

    Attributes:
      stats: running moments of the discounted return, or None without scaling.
      discounted_return: float32[B], to continue with in the next rollout.
    """

    reward: Array
    stats: PyTree
    discounted_return: Array


def initial_stats(spec: EnvSpec) -> PyTree:
    """Statistics of nothing, of each of several tasks."""
    return normalizer.init(jnp.zeros((), jnp.float32), len(spec.task_names))


def scale(
    normalize: NormalizeConfig,
    axis: Axis,
    gamma: Array,
    stats: PyTree,
    discounted_return: Array,
    trajectory: Trajectory,
    task_TB: Array | None = None,
) -> ScaledRewards:
    """Rewards over the standard deviation of the discounted return, then clipped, as configured.

    Args:
      gamma: discount, scalar.
      stats: before this rollout; None: rewards are only clipped.
      discounted_return: float32[B], from the rollout before.
      task_TB: int, of several tasks, scaled separately; None: there is one.
    """
    clip = normalize.clip_rewards
    if stats is None:
        reward = trajectory.reward
        return ScaledRewards(jnp.clip(reward, -clip, clip) if clip else reward, None, discounted_return)
    returns_TB, last_B = discounted_returns(
        trajectory.reward,
        trajectory.terminated | trajectory.truncated,
        # Environments also restart without the end of an episode: another stage, another opponent, a resume.
        jnp.where(trajectory.reset[0], 0.0, discounted_return),
        gamma,
        axis.unroll,
    )
    stats = normalizer.update(stats, returns_TB, trajectory.valid, axis.psum, task_TB)
    return ScaledRewards(normalizer.scale_rewards(stats, trajectory.reward, clip, task_TB), stats, last_B)
