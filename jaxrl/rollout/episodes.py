"""Plays whole episodes for evaluation, inside one compiled program."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import TimeStep
from envs.vector import VectorEnv
from envs.wrappers.time_limit import TimeLimit
from jaxrl.networks import Policy
from jaxrl.networks.distributions import draw_noise
from jaxrl.types import Array, PolicyState, PyTree

# Where an environment states no time limit, an evaluation episode is cut off here.
DEFAULT_MAX_EPISODE_STEPS = 10_000
_MOST_STEPS = 2**31 - 1  # steps are counted in int32


@flax.struct.dataclass
class Episodes:
    """Results of E environments playing up to Q episodes each.

    Attributes:
      episode_return: float32[E, Q], raw.
      length: int32[E, Q], steps.
      played: bool[E, Q], whether the slot was asked for.
      finished: bool[E, Q], False where the episode was cut off by the safety limit.
      info_sum, info_max: float32[E, Q] by key of the environment's info, over the steps of the episode; for
        the keys that were asked for.
    """

    episode_return: Array
    length: Array
    played: Array
    finished: Array
    info_sum: dict[str, Array] = flax.struct.field(default_factory=dict)
    info_max: dict[str, Array] = flax.struct.field(default_factory=dict)


def play(
    policy: Policy,
    env: VectorEnv,
    state: PolicyState,
    keys_E: Array,
    quota_E: Array,
    max_quota: int,
    sample: bool,
    info_keys: tuple[str, ...] = (),
) -> Episodes:
    """Lets each environment play exactly its quota of episodes, from a fresh reset and a fresh carry.

    A fixed number per environment, not the first N to finish: that would favour short episodes.

    Args:
      policy: the policy.
      env: environments, not staggered.
      state: parameters and frozen statistics of the policy.
      keys_E: one key per environment.
      quota_E: int32[E], episodes to play; at most `max_quota`.
      max_quota: Q.
      sample: sample actions instead of taking the distribution's mode.
      info_keys: what of the environment's info to record; `TimeStep.info` must have them at each step.
    """
    limit = min(env.spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS, _MOST_STEPS)
    most_steps = min(limit * max_quota, _MOST_STEPS)
    endless = env.spec.max_episode_steps is None
    if endless:
        env = VectorEnv(TimeLimit(env.env, limit))
    num_envs = keys_E.shape[0]
    reset_keys, step_keys = jax.vmap(jax.random.split, out_axes=1)(keys_E)
    env_state, obs = env.reset(reset_keys)
    empty = jnp.zeros((num_envs, max_quota))
    asked = jnp.arange(max_quota)[None, :] < quota_E[:, None]
    sums, largest = dict.fromkeys(info_keys, empty), dict.fromkeys(info_keys, empty - jnp.inf)
    start = _Loop(
        t=jnp.zeros((), jnp.int32),
        env_state=env_state,
        obs=obs,
        reset=jnp.ones(num_envs, bool),
        carry=policy.initial_carry(num_envs),
        episodes=Episodes(empty, empty.astype(jnp.int32), asked, empty.astype(bool), sums, largest),
        ended=empty.astype(bool),
    )

    def unfinished(loop: _Loop) -> Array:
        return jnp.any(loop.episodes.played & ~loop.ended) & (loop.t < most_steps)

    def step(loop: _Loop) -> _Loop:
        out = policy.act(state, loop.obs, loop.carry, loop.reset, env.action_mask(loop.env_state))
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(step_keys, loop.t)
        action = _sampled(policy, keys, out.distribution) if sample else out.distribution.mode()
        env_state, timestep = env.step(keys, loop.env_state, policy.head.to_env(action))
        episodes, ended = _counted(loop.episodes, loop.ended, timestep, limit if endless else None)
        return _Loop(
            t=loop.t + 1,
            env_state=env_state,
            obs=timestep.obs,
            reset=timestep.done,
            carry=out.carry,
            episodes=episodes,
            ended=ended,
        )

    last: _Loop = jax.lax.while_loop(unfinished, step, start)
    return last.episodes


def _counted(
    episodes: Episodes, ended: Array, timestep: TimeStep, limit: int | None
) -> tuple[Episodes, Array]:
    """The episodes, and bool[E, Q] which are over, after one more step; `limit` cuts off endless ones."""
    # The slot of the episode in progress; none once the quota is played.
    current = (jnp.cumsum(~ended, axis=1) == 1) & ~ended & episodes.played
    length = episodes.length + current.astype(jnp.int32)
    ends = finishes = current & timestep.done[:, None]
    if limit is not None:
        finishes = ends & ~((length >= limit) & ~timestep.terminated[:, None])
    info = {key: timestep.info[key].astype(jnp.float32)[:, None] for key in episodes.info_sum}
    episodes = dataclasses.replace(
        episodes,
        episode_return=episodes.episode_return + jnp.where(current, timestep.reported_reward[:, None], 0.0),
        length=length,
        finished=episodes.finished | finishes,
        info_sum={key: x + jnp.where(current, info[key], 0) for key, x in episodes.info_sum.items()},
        info_max={
            key: jnp.where(current, jnp.maximum(x, info[key]), x) for key, x in episodes.info_max.items()
        },
    )
    return episodes, ended | ends


@flax.struct.dataclass
class _Loop:
    """Before step `t`; `ended`: bool[E, Q], the episodes that are over."""

    t: Array
    env_state: PyTree
    obs: PyTree
    reset: Array
    carry: PyTree
    episodes: Episodes
    ended: Array


def _sampled(policy: Policy, keys_E: Array, distribution: PyTree) -> Array:
    # A fold of its own: the environment consumes `keys_E` as they are.
    keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_E, 1 << 20)
    head = policy.head
    noise = jax.vmap(lambda key: draw_noise(head.noise_kind, key, head.noise_shape))(keys)
    return distribution.sample(noise)
