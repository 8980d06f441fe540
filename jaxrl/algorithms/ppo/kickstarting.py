"""PPO that starts from a policy: a teacher that it is held near, a value function that learns alone at first.

Schmitt et al. 2018, "Kickstarting deep reinforcement learning". A clone of demonstrations has no value.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import VALUE_HEAD, ActorCritic, ActorCriticOutput
from jaxrl.algorithms.base import run_progress
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import Config
from jaxrl.networks.distributions import kl_divergence
from jaxrl.types import Acting, Array, PyTree, Sharded, Trajectory

METRICS = ("ppo/teacher_kl", "ppo/teacher_coef")
# Of a batch: the teacher's distribution at each step.
_DISTRIBUTION = "teacher"


@flax.struct.dataclass
class PPOState(RolloutState):
    """The state of PPO; a teacher, if it has one, with its carry [B, ...] before the next rollout."""

    teacher: Acting | None = None
    teacher_carry: Annotated[PyTree, Sharded(0)] = None


def expect(agent: ActorCritic, learner: PPOState, num_envs: int) -> PPOState:
    """With the place of a teacher that is still to be read: NaN, so that none can be forgotten."""
    teacher = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), learner.policy)
    return dataclasses.replace(learner, teacher=teacher, teacher_carry=agent.initial_carry(num_envs))


def consult(
    agent: ActorCritic, learner: PPOState, trajectory: Trajectory, batch: Batch
) -> tuple[PPOState, Batch]:
    """With the teacher's distribution in the batch, along a rollout that it has not acted in.

    Its carry goes through all rollouts, and begins anew with each episode, as if it acted.
    """
    assert learner.teacher is not None
    seen = agent.normalize(learner.teacher, trajectory.obs)
    inputs = (seen, learner.teacher_carry, trajectory.reset, trajectory.action_mask)
    out = agent.apply(learner.teacher, *inputs)
    rows = batch.rows | {_DISTRIBUTION: jax.lax.stop_gradient(out.distribution)}
    return dataclasses.replace(learner, teacher_carry=out.carry), dataclasses.replace(batch, rows=rows)


def teacher_loss(
    config: Config, learner: PPOState, out: ActorCriticOutput, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    """(its part of the loss of a minibatch, what METRICS reports): sums over the steps that count."""
    coef = teacher_coef(config, learner)
    kl = kl_divergence(batch.rows[_DISTRIBUTION], out.distribution)
    sums = (batch.total(kl), batch.total(jnp.broadcast_to(coef, kl.shape)))
    return coef * sums[0], dict(zip(METRICS, sums, strict=True))


def teacher_coef(config: Config, learner: RolloutState) -> Array:
    """float32[]: from `ppo.teacher_coef` linearly to 0 after `ppo.teacher_fraction` of the run."""
    progress = run_progress(config, learner, jnp.float32(config.ppo.teacher_fraction))
    return config.ppo.teacher_coef * (1.0 - progress)


def warms_up(config: Config, learner: RolloutState) -> Array:
    """bool[], True if only the value function learns."""
    planned = config.ppo.value_warmup * config.updates_per_iteration
    return learner.updates < planned


def without_policy(config: Config, learner: RolloutState, params: PyTree) -> PyTree:
    """The parameters; while only the value learns, the ones that the policy reads get no gradients.

    A value function with its own trunk shares nothing with the policy.
    """
    if config.network.has_own_value:
        return params
    warm = warms_up(config, learner)
    fixed = lambda x: jnp.where(warm, jax.lax.stop_gradient(x), x)  # noqa: E731
    return {name: part if name == VALUE_HEAD else jax.tree.map(fixed, part) for name, part in params.items()}


def after_warmup(config: Config, before: PPOState, after: PPOState) -> PPOState:
    """The state after an iteration that may have been of the warm-up, or its last one."""
    warm = warms_up(config, before)
    # Adam has counted updates in which the policy had no gradients: with means that start from 0 and a
    # correction that is over, its first steps would be three times as long as a fresh Adam's.
    ends = warm & ~warms_up(config, after)
    opt_state = jax.tree.map(lambda x: jnp.where(ends, jnp.zeros_like(x), x), after.opt_state)
    policy = after.policy
    stats = before.policy.obs_stats
    if stats is not None:
        # Other statistics would be another policy.
        keeps = warm & (stats.count > 0).any()
        stats = jax.tree.map(lambda old, new: jnp.where(keeps, old, new), stats, policy.obs_stats)
        policy = dataclasses.replace(policy, obs_stats=stats)
    return dataclasses.replace(after, opt_state=opt_state, policy=policy)
