"""The start of environments on the host: keys, seeds, lengths of first episodes, shapes of a rollout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.envs.base import EnvSpec, zeros
from jaxrl.experience.statistics import SUCCESS, EpisodeReports, no_totals
from jaxrl.experience.tasks import TASK_KEY, TaskSampler
from jaxrl.programs.learning import environment_keys, iteration_keys
from jaxrl.types import Array, BehaviourPolicy, EpisodeRows, EpisodeTotals, PyTree, Trajectory

# Keeps the seeds of environments apart from everything else derived from the same key.
_SEEDS = 0x53454544


def action_keys(key: Array, iteration: Array, index: Array) -> Array:
    """One key per environment for the actions of an iteration: the keys that a device collector would use."""
    rollout_key, _ = iteration_keys(key, iteration)
    return environment_keys(rollout_key, index)


def deal_tasks(sampler: TaskSampler, tasks: PyTree, keys_B: Array, length: int) -> PyTree:
    """Tasks [T, B, ...] of the episodes that begin after each of T steps; `keys_B` are of the iteration."""
    keys_B = jax.vmap(lambda key: jax.random.fold_in(key, TASK_KEY))(keys_B)

    def at(t: Array) -> PyTree:
        return sampler.choose(tasks, jax.vmap(lambda key: jax.random.fold_in(key, t))(keys_B))

    return jax.vmap(at)(jnp.arange(length))


def start_numbers(spec: EnvSpec, key: Array, iteration: Array, index: Array) -> tuple[Array, Array]:
    """Samples (seeds, lengths of staggered first episodes) for environments of global indices.

    `key` and `iteration` are the state's: environments that start later in a run get other numbers.
    """
    key = jax.random.fold_in(jax.random.fold_in(key, _SEEDS), iteration)
    seed_keys, stagger_keys = jax.vmap(jax.random.split, out_axes=1)(environment_keys(key, index))
    limit = min(spec.max_episode_steps or 1, 2**31 - 2)  # one more must still be an int32
    seeds = jax.vmap(lambda k: jax.random.randint(k, (), 0, 2**31 - 1))(seed_keys)
    return seeds, jax.vmap(lambda k: jax.random.randint(k, (), 1, limit + 1))(stagger_keys)


def example_rollout(
    config: Config,
    agent: Agent,
    spec: EnvSpec,
    reports: EpisodeReports,
    overlap: bool,
    per_device: bool = False,
    sampler: TaskSampler | None = None,
) -> tuple[Trajectory, EpisodeTotals]:
    """A rollout of zeros, of all environments or of one device's, and totals of [devices]; for shapes."""
    length = config.rollout_length
    num_envs = config.rows_per_device if per_device else config.env.rows
    carry = agent.initial_carry(num_envs)
    flags = jnp.zeros((length, num_envs), bool)
    obs = zeros(spec.observation_space, (length, num_envs))
    acting = agent.init(jax.random.key(0))
    mask = jnp.ones((length, num_envs, spec.mask_size), bool) if spec.has_action_mask else None
    first_obs, first_mask = jax.tree.map(lambda x: x[0], (obs, mask))
    out = agent.forward(acting, first_obs, carry, flags[0], first_mask)
    action, extras = agent.choose(out, agent.draw_noise(jax.random.key(0), (num_envs,)))
    last = agent.bootstrap(out)

    def rows(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (length, *x.shape)), tree)

    episodes = None
    if sampler is not None:
        keys = jax.random.split(jax.random.key(0), num_envs)
        numbers = jnp.zeros((length, num_envs))
        told = dict.fromkeys(reports.labels, numbers)
        episodes = EpisodeRows(
            ended=flags,
            done=flags,
            task=deal_tasks(sampler, sampler.init(jax.random.key(0)), keys, length),
            episode_return=numbers,
            length=numbers.astype(jnp.int32),
            success=told.get(SUCCESS),
            reports=told,
            valid=flags,
        )
    trajectory = Trajectory(
        obs=obs,
        reset=flags,
        action=rows(action),
        action_mask=mask,
        reward=jnp.zeros((length, num_envs)),
        terminated=flags,
        truncated=flags,
        carry=jax.tree.map(lambda x: jnp.broadcast_to(x, (config.num_chunks, *x.shape)), carry),
        next_obs=first_obs,
        extras=rows(extras),
        bootstrap=rows(last),
        last=last,
        valid=flags,
        episodes=episodes,
        behaviour=BehaviourPolicy(acting.obs_stats) if overlap else None,
    )
    return trajectory, no_totals(reports, config.device_count)
