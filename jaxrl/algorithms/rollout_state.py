"""The state of learners from rollouts, the statistics in it, and parameters sampled again in mid-run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp
import optax

from jaxrl.algorithms.advantage import discounted_returns
from jaxrl.algorithms.agent import quantities
from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.minibatches import MinibatchState
from jaxrl.algorithms.optimizer import OptimizerShards, fits, require_fit
from jaxrl.config import ConfigError, NormalizeConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.mixture import task_of
from jaxrl.networks import normalizer
from jaxrl.types import Array, Axis, PyTree, Sharded, Trajectory, Transferable


@flax.struct.dataclass
class RolloutState(MinibatchState):
    """The state of learners from rollouts.

    Attributes:
      reward_stats: running moments of the discounted return, or None.
      discounted_return: float32[B], accumulator for reward scaling.
    """

    reward_stats: Annotated[PyTree, Transferable()]
    discounted_return: Annotated[Array, Sharded(0)]


def with_observations(
    learner: Any,
    spec: EnvSpec,
    obs: PyTree,
    valid: Array | None,
    axis: Axis,
    choose: Callable[[Array, Array], Array] = lambda old, new: new,
    anew: bool = False,
) -> Any:
    """The learner with observations [T, B, *O] of all devices in its statistics, of each task its own.

    Args:
      learner: without statistics it stays as it is.
      valid: bool[T, B], the rows that count; None: all.
      choose: chooses between each old and new array.
      anew: the new ones are of these observations alone.
    """
    stats = learner.policy.obs_stats
    if stats is None:
        return learner
    start = jax.tree.map(jnp.zeros_like, stats) if anew else stats
    task = task_of(spec, obs)
    obs = quantities(spec.observation_space, obs)
    after = normalizer.update(start, obs, valid, axis.psum, task)
    policy = dataclasses.replace(learner.policy, obs_stats=jax.tree.map(choose, stats, after))
    return dataclasses.replace(learner, policy=policy)


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


def scaled_rewards(
    normalize: NormalizeConfig, axis: Axis, spec: EnvSpec, learner: Any, trajectory: Trajectory
) -> tuple[Any, Array]:
    """(learner with the statistics of these rewards, rewards float32[T, B] to learn from).

    They are divided by the standard deviation of the discounted return, of each of several tasks its own,
    then clipped, as configured.
    """
    clip = normalize.clip_rewards
    stats = learner.reward_stats
    reward_TB = trajectory.reward
    if stats is None:
        return learner, jnp.clip(reward_TB, -clip, clip) if clip else reward_TB
    returns_TB, last_B = discounted_returns(
        reward_TB,
        trajectory.terminated | trajectory.truncated,
        # Environments also restart without the end of an episode: another stage, another opponent, a resume.
        jnp.where(trajectory.reset[0], 0.0, learner.discounted_return),
        learner.hyperparams.gamma,
        axis.unroll,
    )
    task_TB = task_of(spec, trajectory.obs)
    stats = normalizer.update(stats, returns_TB, trajectory.valid, axis.psum, task_TB)
    reward_TB = normalizer.scale_rewards(stats, reward_TB, clip, task_TB)
    return dataclasses.replace(learner, reward_stats=stats, discounted_return=last_B), reward_TB


def renew(
    learner: MinibatchState,
    fresh: MinibatchState,
    patterns: tuple[str, ...],
    shards: OptimizerShards | None = None,
) -> MinibatchState:
    """The learner, with a fresh one's parameters for the names that fit a pattern.

    The mean of their gradients in Adam starts from 0. The mean of the squares stays: from 0, far from the
    first update of a run and without its correction, the first steps would be three times as long as usual.

    Args:
      patterns: of names such as `params/head/*`.
      shards: the layout of the optimiser's state; None: all of it is here.
    """
    old, unravel = jax.flatten_util.ravel_pytree(learner.policy.params)
    new, _ = jax.flatten_util.ravel_pytree(fresh.policy.params)
    is_new = fits(learner.policy.params, patterns)
    own = is_new if shards is None else shards.own(shards.pad(is_new))
    mean = jnp.where(own, 0.0, optax.tree.get(learner.opt_state, "mu"))
    return dataclasses.replace(
        learner,
        policy=dataclasses.replace(learner.policy, params=unravel(jnp.where(is_new, new, old))),
        opt_state=optax.tree.set(learner.opt_state, mu=mean),
    )


def require_renewable(algorithm: Algorithm, patterns: tuple[str, ...]) -> None:
    """Raises ConfigError if an algorithm cannot reinitialise parameters, or a pattern fits none."""
    if not issubclass(algorithm.state_type, MinibatchState):
        raise ConfigError(f"`fresh` is not offered by `algorithm` (={algorithm.name!r})")
    params: Any = jax.eval_shape(algorithm.agent.init_params, jax.random.key(0))
    require_fit("fresh", patterns, params)
