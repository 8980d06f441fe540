"""Plays a few episodes in each of many levels, on all devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation.evaluator import MAX_ENVIRONMENTS, STREAM, await_episodes
from jaxrl.experience.episodes import EpisodePlayer, Episodes
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology
from jaxrl.types import Acting, Array, PyTree


class LevelPlayer:
    """Plays Q episodes in each level, `MAX_ENVIRONMENTS` levels at a time."""

    def __init__(
        self,
        agent: Agent,
        env: VectorEnv,
        topology: Topology,
        reports: EpisodeReports,
        episodes: int,
        sample: bool,
    ) -> None:
        """Compiles nothing yet.

        Args:
          agent: plays.
          env: with tasks, not staggered.
          topology: all devices.
          reports: as for `EpisodePlayer`, with success.
          episodes: Q.
          sample: sample actions instead of taking the best ones.
        """
        if sample:
            agent.require_samples()
        self._topology = topology
        self._reports = reports
        axis = topology.axis
        player = EpisodePlayer(agent, env, reports)

        def program(state: Acting, key: Array, first: Array, count: Array, task: PyTree) -> Episodes:
            here = len(jax.tree.leaves(task)[0])
            index = first + axis.index() * here + jnp.arange(here)
            keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
            quota = jnp.where(index < count, episodes, 0)
            return player.play(state, keys, quota, episodes, sample, task)

        inputs = (REPLICATED, REPLICATED, REPLICATED, REPLICATED, SHARDED)
        self._program = topology.shard(program, inputs, SHARDED)

    def solve_rates(self, state: Acting, task: PyTree, seed: int) -> np.ndarray:
        """float64[N], the share of successful episodes in each level [N, ...].

        What a level gives depends on the seed and its index alone.
        """
        count = len(jax.tree.leaves(task)[0])
        devices = self._topology.axis.size
        at_once = -(-min(count, MAX_ENVIRONMENTS) // devices) * devices
        key = self._topology.replicate(jax.random.fold_in(jax.random.key(seed), STREAM))
        found = []
        for first in range(0, count, at_once):
            rows = np.minimum(np.arange(first, first + at_once), count - 1)
            part = jax.tree.map(lambda x: x[rows], task)  # noqa: B023
            played = self._program(state, key, np.int32(first), np.int32(count), part)
            played = await_episodes(played, lambda: False)
            found.append(self._rates(played)[: count - first])
        return np.concatenate(found)

    def _rates(self, played: Episodes) -> np.ndarray:
        ended: dict[str, Any] = self._reports.final_values(
            played.tallies, played.episode_return, played.length, played.finished & played.played, np
        )
        return ended[SUCCESS].value.astype(np.float64).mean(1)
