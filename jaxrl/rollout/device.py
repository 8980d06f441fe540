"""The device runtime: JAX environments inside the compiled program (Anakin in Hessel et al. 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import TimeStep
from envs.vector import VectorEnv
from jaxrl.networks import Policy, normalizer
from jaxrl.networks.distributions import draw_noise
from jaxrl.types import Array, EpisodeStats, PyTree, TrainState, Trajectory


@flax.struct.dataclass
class EpisodeTotals:
    """Sums over the episodes that ended in a rollout; float32 scalars ([B] inside the loop)."""

    count: Array
    episode_return: Array
    length: Array


def rollout(
    policy: Policy, env: VectorEnv, state: TrainState, keys_B: Array, length: int, chunk: int, clip_obs: float
) -> tuple[TrainState, Trajectory, EpisodeTotals]:
    """Steps this device's environments `length` times with the policy of `state`.

    Args:
      policy: the policy; its parameters and normaliser are read from `state` and do not change.
      env: this device's environments.
      state: read: params, obs_stats; advanced: env_state, obs, reset, carry, episode.
      keys_B: one key per environment for this rollout; nothing else is random.
      length: T.
      chunk: L; the carry before every L-th step is kept.
      clip_obs: bound of normalised observations.

    Returns:
      (state, trajectory, episode totals of this device).
    """
    randomness = _randomness(policy, keys_B, length)

    def see(obs: PyTree) -> PyTree:
        return normalizer.normalize(state.obs_stats, obs, clip_obs)

    def step(loop: _Loop, xs: tuple[Array, Array]) -> tuple[_Loop, dict[str, PyTree]]:
        keys, noise_B = xs
        mask = env.action_mask(loop.env_state)
        out = policy.step(state.params, see(loop.obs), loop.carry, loop.reset, mask)
        action = out.distribution.sample(noise_B)
        env_state, timestep = env.step(keys, loop.env_state, policy.head.to_env(action))
        record = {
            "obs": loop.obs,
            "reset": loop.reset,
            "action": action,
            "action_mask": mask,
            "log_prob": out.distribution.log_prob(action),
            "value": out.value,
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "bootstrap_value": _final_value(policy, state.params, see, timestep, out.carry, mask),
        }
        episode, totals = _count_episodes(loop.episode, loop.totals, timestep)
        return _Loop(env_state, timestep.obs, timestep.done, out.carry, episode, totals), record

    def chunk_of_steps(loop: _Loop, xs: PyTree) -> tuple[_Loop, PyTree]:
        after, records = jax.lax.scan(step, loop, xs)
        return after, (records, loop.carry)

    zeros = jnp.zeros(state.reset.shape, jnp.float32)
    totals = EpisodeTotals(zeros, zeros, zeros)
    loop = _Loop(state.env_state, state.obs, state.reset, state.carry, state.episode, totals)
    split = lambda x: x.reshape(length // chunk, chunk, *x.shape[1:])  # noqa: E731
    loop, (records, carry) = jax.lax.scan(chunk_of_steps, loop, jax.tree.map(split, randomness))
    records = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), records)
    mask = env.action_mask(loop.env_state)
    last_value = policy.step(state.params, see(loop.obs), loop.carry, loop.reset, mask).value
    state = dataclasses.replace(
        state,
        env_state=loop.env_state,
        obs=loop.obs,
        reset=loop.reset,
        carry=loop.carry,
        episode=loop.episode,
    )
    return (
        state,
        Trajectory(**records, carry=carry, last_value=last_value),
        jax.tree.map(jnp.sum, loop.totals),
    )


@flax.struct.dataclass
class _Loop:
    env_state: PyTree
    obs: PyTree
    reset: Array
    carry: PyTree
    episode: EpisodeStats
    totals: EpisodeTotals


def _randomness(policy: Policy, keys_B: Array, length: int) -> tuple[Array, Array]:
    """Keys for the environments [T, B] and the action noise [T, B, ...] of a whole rollout, drawn at once."""
    env_keys_B, noise_keys_B = jax.vmap(jax.random.split, out_axes=1)(keys_B)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    env_keys_TB = jax.vmap(at, in_axes=(0, None), out_axes=1)(env_keys_B, jnp.arange(length))

    def draw(key: Array) -> Array:
        return draw_noise(policy.head.noise_kind, key, (length, *policy.head.noise_shape))

    return env_keys_TB, jax.vmap(draw, out_axes=1)(noise_keys_B)


def _final_value(
    policy: Policy,
    params: PyTree,
    see: Callable[[PyTree], PyTree],
    timestep: TimeStep,
    carry: PyTree,
    mask: Array | None,
) -> Array:
    """V(final observation, carry after the last step) where an episode was truncated, else 0; float32[B].

    Not V(s_t), and not the value of the next episode's first observation (Pardo et al. 2018). Computed only
    at steps at which some environment was truncated: a branch, not a second forward pass every step.
    """
    cut = timestep.truncated & ~timestep.terminated

    def value() -> Array:
        out = policy.step(params, see(timestep.final_obs), carry, jnp.zeros_like(cut), mask)
        return jnp.where(cut, out.value, 0.0)

    return jax.lax.cond(jnp.any(cut), value, lambda: jnp.zeros(cut.shape, jnp.float32))


def _count_episodes(
    episode: EpisodeStats, totals: EpisodeTotals, timestep: TimeStep
) -> tuple[EpisodeStats, EpisodeTotals]:
    done = timestep.done
    total_return = episode.episode_return + timestep.reward
    length = episode.episode_length + 1
    counted = (done & ~episode.skip).astype(jnp.float32)
    totals = EpisodeTotals(
        totals.count + counted,
        totals.episode_return + total_return * counted,
        totals.length + length * counted,
    )
    episode = EpisodeStats(
        episode_return=jnp.where(done, 0.0, total_return),
        episode_length=jnp.where(done, 0, length),
        skip=episode.skip & ~done,
    )
    return episode, totals
