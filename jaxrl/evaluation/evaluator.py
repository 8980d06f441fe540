"""Fair evaluation of a policy: a fixed number of whole episodes, and what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.vector import VectorEnv
from jaxrl.config import Config
from jaxrl.metrics import tracing
from jaxrl.networks import Policy
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology, to_host
from jaxrl.rollout.episodes import Episodes, play
from jaxrl.types import Array, PyTree

# Environments played side by side at most; more episodes are played one after the other.
MAX_ENVIRONMENTS = 1024
CONFIDENCE = 0.95

# Keeps the keys of evaluations apart from those of training.
STREAM = 0x4556414C


@dataclass(frozen=True)
class Result:
    """What N episodes gave; returns are raw, lengths in steps.

    `low` and `high` bound the mean return with 95% confidence (normal approximation); `unfinished`
    counts episodes that the safety limit of environments without a time limit cut off.
    """

    episodes: int
    mean: float
    std: float
    low: float
    high: float
    minimum: float
    maximum: float
    mean_length: float
    std_length: float
    unfinished: int

    @classmethod
    def of(cls, episodes: Episodes) -> Result:
        """Summarises host copies of the episodes."""
        played = np.asarray(episodes.played)
        returns = np.asarray(episodes.episode_return, np.float64)[played]
        lengths = np.asarray(episodes.length)[played]
        mean, std = float(returns.mean()), float(returns.std(ddof=1)) if returns.size > 1 else 0.0
        half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * std / math.sqrt(returns.size)
        return cls(
            episodes=int(returns.size),
            mean=mean,
            std=std,
            low=mean - half,
            high=mean + half,
            minimum=float(returns.min()),
            maximum=float(returns.max()),
            mean_length=float(lengths.mean()),
            std_length=float(lengths.std(ddof=1)) if lengths.size > 1 else 0.0,
            unfinished=int((~np.asarray(episodes.finished)[played]).sum()),
        )


def samples(episodes: Episodes) -> dict[str, Any]:
    """Returns and lengths of the single episodes, from host copies; for histograms."""
    played = np.asarray(episodes.played)
    return {
        "returns": np.asarray(episodes.episode_return)[played],
        "lengths": np.asarray(episodes.length)[played],
    }


class Evaluator:
    """Plays episodes on all devices, each its share."""

    def __init__(
        self,
        policy: Policy,
        env: VectorEnv,
        topology: Topology,
        config: Config,
        info_keys: tuple[str, ...] = (),
    ):
        """`env` must not be staggered: evaluation episodes are whole. See `play` for `info_keys`."""
        self._info_keys = info_keys
        self._policy = policy
        self._env = env
        self._topology = topology
        self._clip = config.normalize.clip_observations
        self._compiled: dict[tuple[int, bool], Callable[..., Episodes]] = {}

    def __call__(
        self, params: PyTree, obs_stats: PyTree, key: Array, episodes: int, sample: bool = False
    ) -> Result:
        """Summarises `play` with the same arguments."""
        return Result.of(self.play(params, obs_stats, key, episodes, sample))

    def play(
        self, params: PyTree, obs_stats: PyTree, key: Array, episodes: int, sample: bool = False
    ) -> Episodes:
        """Plays exactly `episodes` episodes from fresh resets and fresh carries; host copies of them.

        Args:
          params: network parameters.
          obs_stats: frozen running moments of the observations, or None.
          key: decides the resets (and the actions with `sample`).
          episodes: how many.
          sample: sample actions instead of taking the most likely ones.
        """
        if (episodes, sample) not in self._compiled:
            self.compile(params, obs_stats, episodes, sample)
        program = self._compiled[episodes, sample]
        # A stream of its own: `split(key)[i]` equals `fold_in(key, i)`, and training splits the seed's key.
        key = jax.random.fold_in(key, STREAM)
        played: Episodes = to_host(program(params, obs_stats, self._topology.replicate(key)))
        return played

    @property
    def compiled(self) -> tuple[Any, ...]:
        """The programs that have been compiled."""
        return tuple(self._compiled.values())

    def compile(self, params: PyTree, obs_stats: PyTree, episodes: int, sample: bool = False) -> None:
        """Compiles ahead of time; `params` and `obs_stats` may be abstract."""
        axis = self._topology.axis
        per_device = -(-min(episodes, MAX_ENVIRONMENTS) // axis.size)
        environments = per_device * axis.size

        def program(params: PyTree, obs_stats: PyTree, key: Array) -> Episodes:
            index = axis.index() * per_device + jnp.arange(per_device)
            keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
            quota = episodes // environments + (index < episodes % environments)
            most = -(-episodes // environments)
            options = (self._clip, sample, self._info_keys)
            with tracing.phase("evaluate"):
                return play(self._policy, self._env, params, obs_stats, keys, quota, most, *options)

        specs = (REPLICATED, REPLICATED, REPLICATED)
        sharded = self._topology.shard(program, specs, SHARDED)
        key = self._topology.abstract(jax.eval_shape(lambda: jax.random.key(0)), REPLICATED)
        self._compiled[episodes, sample] = sharded.lower(params, obs_stats, key).compile()
