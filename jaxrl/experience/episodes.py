"""Plays whole episodes for evaluation, inside one compiled program."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.agents import of_environments, row_keys
from jaxrl.envs.base import TimeStep
from jaxrl.envs.vector_mixture import BatchedEnv, vector_env
from jaxrl.envs.wrappers.episodes import TimeLimit
from jaxrl.envs.wrappers.wrapper import wrapped
from jaxrl.experience.statistics import NO_REPORTS, SUCCESS, EpisodeReports
from jaxrl.types import Acting, Array, PyTree, Tally

# If an environment states no time limit, an evaluation episode is cut off here.
DEFAULT_MAX_EPISODE_STEPS = 10_000
_MOST_STEPS = 2**31 - 1  # steps are counted in int32


@flax.struct.dataclass
class Episodes:
    """Results of E environments playing up to Q episodes each.

    Attributes:
      episode_return: float32[E, Q], raw.
      length: int32[E, Q], steps.
      played: bool[E, Q], True if the slot was requested.
      finished: bool[E, Q], False if the episode was cut off by the safety limit.
      tallies: [E, Q] by label, what the entries of `EpisodeReports` came to over the steps of the episode.
    """

    episode_return: Array
    length: Array
    played: Array
    finished: Array
    tallies: dict[str, Tally] = flax.struct.field(default_factory=dict)

    def values_by_label(self, reports: EpisodeReports) -> dict[str, np.ndarray]:
        """float64[N] by label, what each played episode came to; NaN if it said nothing. On the host.

        Of success silence is 0, unless the environment does not declare it and no episode says anything.
        """
        played = np.asarray(self.played)
        score, length, tallies = jax.tree.map(
            lambda x: np.asarray(x)[played], (self.episode_return, self.length, self.tallies)
        )
        ended: dict[str, Any] = reports.final_values(tallies, score, length, np.ones(len(score), bool), np)
        if not reports.is_declared and not tallies[SUCCESS].count.any():
            ended.pop(SUCCESS)
        return {
            label: np.where(tally.count > 0, tally.value, np.nan).astype(np.float64)
            for label, tally in ended.items()
        }


@dataclass(frozen=True)
class EpisodePlayer:
    """Plays whole episodes.

    Attributes:
      env: environments, not staggered. An episode of several agents is the environment's, its return the
        sum of theirs.
      reports: values beside returns and lengths; `TimeStep.info` must have its keys at each step.
    """

    agent: Agent
    env: BatchedEnv
    reports: EpisodeReports = NO_REPORTS

    def play(
        self,
        acting: Acting,
        keys_E: Array,
        quota_E: Array,
        max_quota: int,
        sample: bool | Array,
        task_E: PyTree = None,
    ) -> Episodes:
        """Lets each environment play exactly its quota of episodes, from a fresh reset and a fresh carry.

        A fixed number per environment, not the first N to finish: that would favour short episodes.

        Args:
          keys_E: one key per environment.
          quota_E: int32[E], episodes to play; at most `max_quota`.
          max_quota: Q.
          sample: sample actions instead of taking the best ones; or bool[E], which environments do.
          task_E: tree of [E, ...], the task of all episodes of each environment; None: the default task.
        """
        agent = self.agent
        acting = agent.prepare(acting)
        env = self.env
        limit = min(env.spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS, _MOST_STEPS)
        if env.spec.max_episode_steps is None:
            env = vector_env(wrapped(env.env, lambda task: TimeLimit(task, limit)))
        most_steps = min(limit * max_quota, _MOST_STEPS)
        # An environment of several agents has a row for each of them.
        keys_B = row_keys(env.spec, keys_E)
        if not isinstance(sample, bool):
            sample = jnp.repeat(sample, len(keys_B) // len(keys_E))
        reset_keys, step_keys = jax.vmap(jax.random.split, out_axes=1)(keys_B)

        def is_unfinished(loop: _Loop) -> Array:
            return jnp.any(loop.episodes.played & ~loop.ended) & (loop.t < most_steps)

        def step(loop: _Loop) -> _Loop:
            mask = env.action_mask(loop.env_state)
            out = agent.forward(acting, loop.obs, loop.carry, loop.reset, mask)
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(step_keys, loop.t)
            action = _choose(agent, keys, out, sample)
            turn = env.is_turn(loop.env_state)
            env_state, timestep = env.step(keys, loop.env_state, agent.to_env(action), task_B=task_E)
            episodes, ended = self._count(loop, of_environments(env.spec, timestep), limit)
            return _Loop(
                t=loop.t + 1,
                env_state=env_state,
                obs=timestep.obs,
                reset=timestep.done if turn is None else timestep.done | ~turn,
                carry=out.carry,
                episodes=episodes,
                ended=ended,
            )

        env_state, obs = env.reset(reset_keys, task_E)
        empty = jnp.zeros((len(quota_E), max_quota))
        asked = jnp.arange(max_quota)[None, :] < quota_E[:, None]
        tallies = {label: Tally(empty, empty) for label, _ in self.reports.entries}
        start = _Loop(
            t=jnp.zeros((), jnp.int32),
            env_state=env_state,
            obs=obs,
            reset=jnp.ones(len(keys_B), bool),
            carry=agent.initial_carry(len(keys_B)),
            episodes=Episodes(empty, empty.astype(jnp.int32), asked, empty.astype(bool), tallies),
            ended=empty.astype(bool),
        )
        last: _Loop = jax.lax.while_loop(is_unfinished, step, start)
        return last.episodes

    def _count(self, loop: _Loop, timestep: TimeStep, limit: int) -> tuple[Episodes, Array]:
        """The episodes, and bool[E, Q] which are over, after one more step; `limit` cuts off endless ones."""
        episodes = loop.episodes
        # The slot of the episode in progress; none once the quota is played.
        current = (jnp.cumsum(~loop.ended, axis=1) == 1) & ~loop.ended & episodes.played
        length = episodes.length + current.astype(jnp.int32)
        ends = finishes = current & timestep.done[:, None]
        if self.env.spec.max_episode_steps is None:
            finishes = ends & ~((length >= limit) & ~timestep.terminated[:, None])
        info = {key: x[:, None] for key, x in self.reports.select(timestep.info).items()}
        tallies = self.reports.add(episodes.tallies, info)
        reward = jnp.where(current, timestep.reported_reward[:, None], 0.0)
        episodes = dataclasses.replace(
            episodes,
            episode_return=episodes.episode_return + reward,
            length=length,
            finished=episodes.finished | finishes,
            tallies=jax.tree.map(lambda new, old: jnp.where(current, new, old), tallies, episodes.tallies),
        )
        return episodes, loop.ended | ends


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


def _choose(agent: Agent, keys_B: Array, out: PyTree, sample: bool | Array) -> Array:
    if sample is False:
        return agent.greedy(out)
    # A separate fold: the environment consumes `keys_B` as they are.
    keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, 1 << 20)
    drawn = agent.choose(out, jax.vmap(lambda key: agent.draw_noise(key, ()))(keys))[0]
    if sample is True:
        return drawn
    return jnp.where(sample.reshape(-1, *[1] * (drawn.ndim - 1)), drawn, agent.greedy(out))
