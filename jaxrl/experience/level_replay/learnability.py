"""Levels that are solved sometimes, found by separate rollouts (Rutherford et al. 2024)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError, LevelsConfig
from jaxrl.config.curriculum import LEARNABILITY
from jaxrl.config.fields import LARGEST_INT32
from jaxrl.envs.base import JaxEnv
from jaxrl.experience.level_replay import levels as levels_of
from jaxrl.experience.level_replay.levels import NEW, REPLAYED, LevelSource
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import PlayLevels, TaskSampler
from jaxrl.metrics.reduction import Last, LastMean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree


@flax.struct.dataclass
class LearnableLevels:
    """The state of sampling for learnability; replicated.

    Attributes:
      task: tree of [K, ...], the levels that were chosen last.
      learnability: float32[K], p (1 - p) of each, where p is the rate of success.
      iteration: int32[], rollouts of training so far.
      refreshed: int32[], the iteration before which they were chosen; -1: none were.
      steps: int32[], steps of all rollouts that chose levels; none of them is a step of training.
    """

    task: PyTree
    learnability: Array
    iteration: Array
    refreshed: Array
    steps: Array


@dataclass(frozen=True)
class LearnabilitySampler(TaskSampler):
    """Sampling for learnability (Rutherford et al. 2024, "No Regrets").

    Every `levels.refresh_iterations` the policy plays a few episodes in each of many random levels. The
    levels with the highest p (1 - p) are kept until the next time, and a share of the episodes is in these,
    each as often as every other one.
    """

    source: LevelSource
    levels: LevelsConfig

    @classmethod
    def of(cls, config: Config, env: JaxEnv, told: EpisodeReports) -> LearnabilitySampler:
        """The sampler; ConfigError if the environment has no levels, or nothing is known of success."""
        levels = config.levels
        if told.success is None:
            raise ConfigError(
                f"`curriculum.name` (={LEARNABILITY!r}) needs `env.success`, for {env.spec.name} does not "
                "say when an episode is a success"
            )
        if levels.kept > levels.candidates:
            raise ConfigError(
                f"`levels.kept` (={levels.kept}) must be at most `levels.candidates` (={levels.candidates})"
            )
        return cls(source=LevelSource.of(config, env), levels=levels)

    def init(self, key: Array) -> LearnableLevels:
        count = self.levels.kept
        zero = jnp.zeros((), jnp.int32)
        return LearnableLevels(
            task=levels_of.zero_levels(self.source.example, count),
            learnability=jnp.zeros(count),
            iteration=zero,
            refreshed=zero - 1,
            steps=zero,
        )

    def choose(self, state: LearnableLevels, keys_B: Array) -> PyTree:
        share = jnp.where(state.refreshed >= 0, self.levels.replay, 0.0)

        def one(key: Array) -> PyTree:
            kind_key, level_key = jax.random.split(key)
            uniform = jax.random.uniform(kind_key, (2,))
            is_kept = uniform[0] < share
            # Rounding may lead to the end.
            index = jnp.minimum((uniform[1] * self.levels.kept).astype(jnp.int32), self.levels.kept - 1)
            new = self.source.draw(level_key)
            task = jax.tree.map(lambda x, y: jnp.where(is_kept, x[index], y), state.task, new)
            return {"kind": jnp.where(is_kept, REPLAYED, NEW).astype(jnp.int32), "task": task}

        return jax.vmap(one)(keys_B)

    def environment_task(self, task: PyTree) -> PyTree:
        return task["task"]

    def update(
        self, state: LearnableLevels, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis
    ) -> LearnableLevels:
        return dataclasses.replace(state, iteration=state.iteration + 1)

    def refresh(self, state: LearnableLevels, play: PlayLevels, key: Array, axis: Axis) -> LearnableLevels:
        levels = self.levels
        per_device = -(-levels.candidates // axis.size)
        index = axis.index() * per_device + jnp.arange(per_device)
        keys_E = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        task_E = self.source.numbered(key, index)
        quota_E = jnp.where(index < levels.candidates, levels.episodes, 0)
        found = play(task_E, keys_E, quota_E, levels.episodes)
        rate_E = found.success.mean(1)
        # Of equal ones the first level comes first, whatever the devices.
        learnability = jnp.where(quota_E > 0, rate_E * (1.0 - rate_E), -1.0)
        together = jax.tree.map(axis.gather, (learnability, task_E))
        together = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: levels.candidates], together)
        best, place = jax.lax.top_k(together[0], levels.kept)
        made = axis.psum(found.length.sum())
        after = LearnableLevels(
            task=jax.tree.map(lambda x: x[place], together[1]),
            learnability=best,
            iteration=state.iteration,
            refreshed=state.iteration,
            steps=jnp.where(state.steps > LARGEST_INT32 - made, LARGEST_INT32, state.steps + made),
        )
        # A run that is resumed here has chosen them already.
        is_done = state.refreshed == state.iteration
        return jax.tree.map(lambda old, new: jnp.where(is_done, old, new), state, after)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        kinds: dict[str, type[Metric]] = {"levels/learnability": LastMean, "levels/refresh_steps": Last}
        return kinds | dict(levels_of.declared_metrics(knows_success=True, edits=False))

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        return levels_of.HIGHLIGHTS

    def report(self, state: LearnableLevels, episodes: EpisodeRows, axis: Axis) -> Metrics:
        found: Metrics = {
            "levels/learnability": LastMean(
                state.learnability.sum(), jnp.where(state.refreshed >= 0, jnp.float32(self.levels.kept), 0.0)
            ),
            "levels/refresh_steps": Last(state.steps),
        }
        return found | levels_of.episode_metrics(episodes, axis, knows_success=True, edits=False)
