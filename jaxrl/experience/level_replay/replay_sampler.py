"""Prioritised level replay as a task sampler, with its robust form and with edits of levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError, LevelsConfig
from jaxrl.config.curriculum import ACCEL, MAX_MONTE_CARLO, ROBUST_PLR
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import method_of_tasks
from jaxrl.envs.trees import select_rows
from jaxrl.experience.level_replay import distribution
from jaxrl.experience.level_replay import levels as levels_of
from jaxrl.experience.level_replay.distribution import EpisodeSums
from jaxrl.experience.level_replay.levels import EDITED, NEW, REPLAYED, LevelBuffer, LevelSource, NewLevels
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import TaskSampler
from jaxrl.metrics.reduction import LastMean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree

# New levels of a rollout, over all devices, that may come into the buffer.
_MOST_NEW = 256
_NO_PLACE = -1


@flax.struct.dataclass
class ReplayedLevels:
    """The replicated state: `iteration` int32[] counts rollouts, `sums` are of all environments."""

    buffer: LevelBuffer
    sums: EpisodeSums
    iteration: Array


@dataclass(frozen=True)
class LevelReplaySampler(TaskSampler):
    """Episodes in new levels, and in a buffer's by score and staleness (Jiang et al. 2021).

    With `is_robust` only replayed levels are learnt from (Jiang et al. 2021b); with `mutate` half of the
    episodes that would be replays are in edited copies of such levels (ACCEL, Parker-Holder et al. 2022).

    A task holds the kind of an episode (`kind`), the place of its level in the buffer (`slot`), the number of
    the level there (`born`), and the environment's own task (`task`).

    Attributes:
      num_envs: environments over all devices.
      is_robust: rows of levels that are not replayed carry no loss.
      mutate: a changed level from a key and a level, or None.
      knows_success: True if success is known of episodes.
    """

    source: LevelSource
    levels: LevelsConfig
    num_envs: int
    is_robust: bool
    mutate: Callable[[Array, PyTree], PyTree] | None
    knows_success: bool

    @classmethod
    def of(cls, config: Config, env: JaxEnv, told: EpisodeReports) -> LevelReplaySampler:
        """The sampler; ConfigError if the environment has no levels, or cannot edit them."""
        name = config.curriculum.name
        mutate = None
        source = LevelSource.of(config, env)
        if config.levels.score == MAX_MONTE_CARLO and (
            config.normalize.rewards or config.normalize.clip_rewards
        ):
            raise ConfigError(
                f"`levels.score` (={MAX_MONTE_CARLO!r}) compares returns with values, which "
                "`normalize.rewards` and `normalize.clip_rewards` put on another scale: choose another score"
            )
        if name == ACCEL:
            mutate = method_of_tasks(env, "mutate")
            if mutate is None or source.pool is not None:
                raise ConfigError(
                    f"`curriculum.name` (={ACCEL!r}) edits levels: {env.spec.name} has no mutate(key, level)"
                )
        return cls(
            source=source,
            levels=config.levels,
            num_envs=config.env.num_envs,
            is_robust=name in (ROBUST_PLR, ACCEL),
            mutate=mutate,
            knows_success=told.knows_success,
        )

    @property
    def signals(self) -> tuple[str, ...]:  # type: ignore[override]
        return (distribution.SIGNALS[self.levels.score],)

    def init(self, key: Array) -> ReplayedLevels:
        return ReplayedLevels(
            buffer=self.source.empty_buffer(),
            sums=EpisodeSums(jnp.zeros(self.num_envs), jnp.zeros(self.num_envs)),
            iteration=jnp.zeros((), jnp.int32),
        )

    def choose(self, state: ReplayedLevels, keys_B: Array) -> PyTree:
        buffer = state.buffer
        chance = levels_of.chances(self.levels, buffer, state.iteration)
        keys_B3 = jax.vmap(lambda key: jax.random.split(key, 3))(keys_B)
        uniform_B2 = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys_B3[:, 0])
        kind = self._kind(buffer, uniform_B2[:, 0])
        slot = distribution.draw(chance, uniform_B2[:, 1])
        if self.source.pool is None:
            fresh = jax.vmap(self.source.draw)(keys_B3[:, 1])
            own = jax.tree.map(lambda x: x[slot], buffer.task)
            task = select_rows(kind == NEW, fresh, own)
            if self.mutate is not None:
                task = select_rows(kind == EDITED, jax.vmap(self.mutate)(keys_B3[:, 2], own), task)
            place = jnp.where(kind == REPLAYED, slot, _NO_PLACE)
        else:
            unseen = (~buffer.filled).astype(jnp.float32)
            place = jnp.where(kind == NEW, distribution.draw(unseen, uniform_B2[:, 1]), slot)
            task = jax.tree.map(lambda x: x[place], buffer.task)
        return {"kind": kind, "slot": place, "born": buffer.born[place], "task": task}

    def environment_task(self, task: PyTree) -> PyTree:
        return task["task"]

    def learns_from(self, task_TB: PyTree) -> Array | None:
        return task_TB["kind"] == REPLAYED if self.is_robust else None

    def update(
        self, state: ReplayedLevels, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis
    ) -> ReplayedLevels:
        kind = self.levels.score
        numbers = distribution.step_numbers(kind, signals[distribution.SIGNALS[kind]])
        count = episodes.ended.shape[1]
        own = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, axis.index() * count, count), state.sums)
        own, mean = distribution.episode_means(own, numbers, episodes)
        sums = jax.tree.map(lambda x: axis.gather(x).reshape(-1), own)
        slot = episodes.task["slot"]
        best = jnp.where(
            slot == _NO_PLACE,
            episodes.episode_return,
            jnp.maximum(episodes.episode_return, state.buffer.best[slot]),
        )
        score = distribution.level_scores(kind, mean, best)
        buffer = self._with_played(state, episodes, score, axis)
        if self.source.pool is None:
            new = _new_levels(episodes, score, min(_MOST_NEW, self.source.capacity), axis)
            buffer = levels_of.insert(self.levels, buffer, new, state.iteration)
        return ReplayedLevels(buffer=buffer, sums=sums, iteration=state.iteration + 1)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        of_buffer = dict.fromkeys(("levels/score", "levels/staleness", "levels/filled"), LastMean)
        return {**of_buffer, **levels_of.declared_metrics(self.knows_success, self.mutate is not None)}

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        return levels_of.HIGHLIGHTS

    def report(self, state: ReplayedLevels, episodes: EpisodeRows, axis: Axis) -> Metrics:
        buffer = state.buffer
        filled = buffer.filled.astype(jnp.float32)
        count = filled.sum()
        age = (state.iteration - 1 - buffer.played).astype(jnp.float32)
        return {
            "levels/score": LastMean((filled * buffer.score).sum(), count),
            "levels/staleness": LastMean((filled * age).sum(), count),
            "levels/filled": LastMean(count, jnp.full((), filled.size, jnp.float32)),
            **levels_of.episode_metrics(episodes, axis, self.knows_success, self.mutate is not None),
        }

    def _kind(self, buffer: LevelBuffer, uniform_B: Array) -> Array:
        """int32[B], what episodes are, by random numbers."""
        share = self.levels.replay
        filled = buffer.filled
        count = filled.sum(dtype=jnp.int32)
        # There may be fewer levels than places: episodes in levels that have one count as well.
        tried = jnp.maximum(count, buffer.next_born).astype(jnp.float32)
        may_replay = (count > 0) & (tried >= self.levels.fill * self.source.capacity)
        replayed = jnp.where(may_replay, share, 0.0)
        edited = jnp.zeros(())
        if self.mutate is not None:
            # In its paper the levels just replayed are edited and played once, so there are as many.
            replayed = edited = replayed / (1.0 + replayed)
        if self.source.pool is not None:
            replayed = jnp.where(filled.all(), 1.0, replayed)
        kind = jnp.where(uniform_B < replayed + edited, EDITED, NEW)
        return jnp.where(uniform_B < replayed, REPLAYED, kind).astype(jnp.int32)

    def _with_played(
        self, state: ReplayedLevels, episodes: EpisodeRows, score: Array, axis: Axis
    ) -> LevelBuffer:
        """The buffer after episodes of all devices in its levels; one never played before is filled by it."""
        buffer = state.buffer
        slot = episodes.task["slot"]
        is_own = slot != _NO_PLACE
        if self.source.pool is None:
            is_own = is_own & (buffer.born[slot] == episodes.task["born"])
        ended = is_own & episodes.ended
        zeros = jnp.zeros(self.source.capacity, jnp.float32)
        total, count, seen = axis.psum(
            (
                zeros.at[slot].add(jnp.where(ended, score, 0.0)),
                zeros.at[slot].add(ended.astype(jnp.float32)),
                zeros.at[slot].add(is_own.astype(jnp.float32)),
            )
        )
        best = (zeros - jnp.inf).at[slot].max(jnp.where(ended, episodes.episode_return, -jnp.inf))
        scored = count > 0
        born = buffer.born
        if self.source.pool is not None:
            born = jnp.where(scored & (born == levels_of.NOT_FILLED), state.iteration, born)
        return dataclasses.replace(
            buffer,
            score=jnp.where(scored, total / jnp.maximum(count, 1.0), buffer.score),
            best=jnp.maximum(buffer.best, axis.gather(best).max(0)),
            played=jnp.where(seen > 0, state.iteration, buffer.played),
            born=born,
        )


def _new_levels(episodes: EpisodeRows, score_TB: Array, most: int, axis: Axis) -> NewLevels:
    """The new levels of all devices with the highest scores, at most so many; the same on each device.

    Of equal scores the first environment comes first, whatever the devices.
    """
    is_one = episodes.ended & (episodes.task["slot"] == _NO_PLACE)
    by_env = lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])  # noqa: E731
    found = NewLevels(
        task=jax.tree.map(by_env, episodes.task["task"]),
        score=jnp.where(by_env(is_one), by_env(score_TB), -jnp.inf),
        best=by_env(episodes.episode_return),
        is_one=by_env(is_one),
    )

    def highest(levels: NewLevels) -> NewLevels:
        _, index = jax.lax.top_k(levels.score, min(most, len(levels.score)))
        return jax.tree.map(lambda x: x[index], levels)

    best = highest(found)
    if axis.size == 1:
        return best
    # A sum of bools is a number.
    return highest(jax.tree.map(lambda x: axis.gather(x).astype(x.dtype).reshape(-1, *x.shape[1:]), best))
