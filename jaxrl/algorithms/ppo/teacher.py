"""A teacher beside PPO: a policy that stays as it is, and which the learner is held near.

Schmitt et al. 2018, "Kickstarting deep reinforcement learning".
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.algorithms.progress import run_progress
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.config import Config
from jaxrl.types import Acting, Array, PyTree, Sharded, Trajectory


@flax.struct.dataclass
class PPOState(RolloutState):
    """The state of PPO.

    Attributes:
      teacher: None without one.
      teacher_carry: tree of [B, ...], its recurrent carry before the next rollout.
    """

    teacher: Acting | None = None
    teacher_carry: Annotated[PyTree, Sharded(0)] = None


def expect(agent: ActorCritic, learner: PPOState, num_envs: int) -> PPOState:
    """With the place of a teacher that is still to be read: NaN, so that none can be forgotten."""
    teacher = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), learner.policy)
    return dataclasses.replace(learner, teacher=teacher, teacher_carry=agent.initial_carry(num_envs))


def consult(agent: ActorCritic, learner: PPOState, trajectory: Trajectory) -> tuple[PPOState, Any]:
    """(learner, the teacher's distribution [T, B, ...]) along a rollout that it has not acted in.

    Its carry goes through all rollouts, and restarts with each episode, as if it acted.
    """
    assert learner.teacher is not None
    seen = agent.normalize(learner.teacher, trajectory.obs)
    inputs = (seen, learner.teacher_carry, trajectory.reset, trajectory.action_mask)
    out = agent.apply(learner.teacher, *inputs)
    return dataclasses.replace(learner, teacher_carry=out.carry), jax.lax.stop_gradient(out.distribution)


def weight(config: Config, learner: RolloutState) -> Array:
    """float32[]: from `ppo.teacher_coef` linearly to 0 after `ppo.teacher_fraction` of the run."""
    progress = run_progress(learner, jnp.float32(config.ppo.teacher_fraction), config.total_updates)
    return config.ppo.teacher_coef * (1.0 - progress)
