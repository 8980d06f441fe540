"""Plays whole episodes for evaluation, inside one compiled program."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from envs.base import TimeStep
from envs.vector import VectorEnv
from envs.wrappers.time_limit import TimeLimit
from jaxrl.networks import Policy
from jaxrl.networks.distributions import draw_noise
from jaxrl.rollout.statistics import NO_REPORTS, EpisodeReports
from jaxrl.types import Array, PolicyState, PyTree, Tally

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
      tallies: [E, Q] by label, what the entries of `EpisodeReports` came to over the steps of the episode.
    """

    episode_return: Array
    length: Array
    played: Array
    finished: Array
    tallies: dict[str, Tally] = flax.struct.field(default_factory=dict)

    def told(self, reports: EpisodeReports) -> dict[str, np.ndarray]:
        """float64[N] by label, what each played episode came to; NaN where it said nothing. On the host."""
        played = np.asarray(self.played)
        score, length, tallies = jax.tree.map(
            lambda x: np.asarray(x)[played], (self.episode_return, self.length, self.tallies)
        )
        ended: dict[str, Any] = reports.ended(tallies, score, length, np.ones(len(score), bool), np)
        return {
            label: np.where(tally.count > 0, tally.value, np.nan).astype(np.float64)
            for label, tally in ended.items()
        }


def play(
    policy: Policy,
    env: VectorEnv,
    state: PolicyState,
    keys_E: Array,
    quota_E: Array,
    max_quota: int,
    sample: bool,
    reports: EpisodeReports = NO_REPORTS,
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
      reports: what to record beside returns and lengths; `TimeStep.info` must have its keys at each step.
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
    tallies = {label: Tally(empty, empty) for label, _ in reports.entries}
    start = _Loop(
        t=jnp.zeros((), jnp.int32),
        env_state=env_state,
        obs=obs,
        reset=jnp.ones(num_envs, bool),
        carry=policy.initial_carry(num_envs),
        episodes=Episodes(empty, empty.astype(jnp.int32), asked, empty.astype(bool), tallies),
        ended=empty.astype(bool),
    )

    def unfinished(loop: _Loop) -> Array:
        return jnp.any(loop.episodes.played & ~loop.ended) & (loop.t < most_steps)

    def step(loop: _Loop) -> _Loop:
        out = policy.act(state, loop.obs, loop.carry, loop.reset, env.action_mask(loop.env_state))
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(step_keys, loop.t)
        action = _sampled(policy, keys, out.distribution) if sample else out.distribution.mode()
        env_state, timestep = env.step(keys, loop.env_state, policy.head.to_env(action))
        episodes, ended = _counted(reports, loop.episodes, loop.ended, timestep, limit if endless else None)
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
    reports: EpisodeReports, episodes: Episodes, ended: Array, timestep: TimeStep, limit: int | None
) -> tuple[Episodes, Array]:
    """The episodes, and bool[E, Q] which are over, after one more step; `limit` cuts off endless ones."""
    # The slot of the episode in progress; none once the quota is played.
    current = (jnp.cumsum(~ended, axis=1) == 1) & ~ended & episodes.played
    length = episodes.length + current.astype(jnp.int32)
    ends = finishes = current & timestep.done[:, None]
    if limit is not None:
        finishes = ends & ~((length >= limit) & ~timestep.terminated[:, None])
    info = {key: timestep.info[key].astype(jnp.float32)[:, None] for key in reports.info_keys}
    tallies = reports.add(episodes.tallies, info)
    episodes = dataclasses.replace(
        episodes,
        episode_return=episodes.episode_return + jnp.where(current, timestep.reported_reward[:, None], 0.0),
        length=length,
        finished=episodes.finished | finishes,
        tallies=jax.tree.map(lambda new, old: jnp.where(current, new, old), tallies, episodes.tallies),
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
