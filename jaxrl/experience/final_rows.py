"""Environments whose final observations are rows of the trajectory, as environments on the host give them."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import TimeStep
from jaxrl.envs.trees import select_rows
from jaxrl.envs.vector import Environments
from jaxrl.types import Array, PyTree


@flax.struct.dataclass
class FinalRowsState:
    """State of B environments.

    Attributes:
      first_obs: [B, *O], the first observation of that episode.
      is_final: bool[B], True if the observation to act on is the last of an episode.
      final_mask: bool[B, n], the actions allowed there; None without action masks.
      next_task: leaves [B, ...], of the episode that begins after it; None if no tasks are chosen.
    """

    env: PyTree
    first_obs: PyTree
    is_final: Array
    final_mask: Array | None
    next_task: PyTree


def begin(env: Environments, env_state: PyTree, obs: PyTree, task: PyTree = None) -> FinalRowsState:
    """The state of environments at the first observations of their episodes, which have these tasks."""
    is_final = jnp.zeros(len(jax.tree.leaves(obs)[0]), bool)
    return FinalRowsState(env_state, obs, is_final, env.action_mask(env_state), task)


def action_mask(env: Environments, state: FinalRowsState) -> Array | None:
    """bool[B, n], the actions allowed at the observations to act on; None without action masks."""
    if state.final_mask is None:
        return None
    return select_rows(state.is_final, state.final_mask, env.action_mask(state.env))


def step(
    env: Environments,
    keys_B: Array,
    state: FinalRowsState,
    action_B: Array,
    next_task: PyTree = None,
    **options: Any,
) -> tuple[FinalRowsState, TimeStep]:
    """Advances every environment by one step, except if the last observation of an episode is acted on.

    There the environment stands still, nothing is rewarded, and the next episode begins with the row after.
    `obs` of the time step is the last of an episode that has just ended.

    Args:
      next_task: of episodes whose first states this step makes.
      options: of `VectorEnv.step`.
    """
    env_state, stepped = env.step(keys_B, state.env, action_B, **options)
    still = state.is_final
    after = FinalRowsState(
        env=env.select(still, state.env, env_state),
        first_obs=select_rows(still, state.first_obs, stepped.obs),
        is_final=stepped.done & ~still,
        final_mask=stepped.final_mask,
        next_task=next_task,
    )
    said = {key: jnp.where(still, jnp.nan, x.astype(jnp.float32)) for key, x in stepped.info.items()}
    timestep = dataclasses.replace(
        stepped,
        obs=select_rows(still, state.first_obs, stepped.final_obs),
        reward=jnp.where(still, 0.0, stepped.reward),
        terminated=stepped.terminated & ~still,
        truncated=stepped.truncated & ~still,
        info=said,
        score=None if stepped.score is None else jnp.where(still, 0.0, stepped.score),
    )
    return after, timestep
