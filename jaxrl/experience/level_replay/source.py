"""The source of new levels, sampled by the environment or all there are, and the metrics of levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import default_task, level_pool, method_of_tasks
from jaxrl.experience.level_replay import buffer
from jaxrl.experience.level_replay.buffer import LevelBuffer
from jaxrl.metrics.reduction import LastMean, Mean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree

# The kinds of an episode's level.
NEW, REPLAYED, EDITED = range(3)
HIGHLIGHTS = (("levels/replayed", "replayed"), ("levels/new_success_rate", "new levels"))

_ORDER = 0x4F524452  # far above the numbers of levels, which are folded into the same key


@dataclass(frozen=True)
class LevelSource:
    """The levels of an environment.

    Attributes:
      capacity: C, of the buffer.
      pool: tree of [C, ...], all levels there are, each at its own place; None if new ones are sampled.
      draw: a new level from a key.
      example: a level, for its shapes only.
    """

    capacity: int
    pool: PyTree
    draw: Callable[[Array], PyTree]
    example: PyTree

    @classmethod
    def of(cls, config: Config, env: JaxEnv) -> LevelSource:
        """The levels of `env`; ConfigError if it neither samples levels nor has a pool of them."""
        pool = level_pool(env)
        draw = method_of_tasks(env, "draw_task")
        if pool is not None:
            count = len(jax.tree.leaves(pool)[0])
            pool = jax.tree.map(jnp.asarray, pool)

            def one(key: Array) -> PyTree:
                index = jax.random.randint(key, (), 0, count)
                return jax.tree.map(lambda x: x[index], pool)

            return cls(count, pool, one, jax.tree.map(lambda x: x[0], pool))
        if draw is None:
            raise ConfigError(
                f"`curriculum.name` (={config.curriculum.name!r}) needs levels: {env.spec.name} has neither "
                "draw_task(key) nor level_pool"
            )
        return cls(config.levels.capacity, None, draw, default_task(env))

    def numbered(self, key: Array, index_E: Array) -> PyTree:
        """Levels [E, ...] by their numbers, with this key; all of a pool come before any comes again."""
        if self.pool is None:
            return jax.vmap(lambda i: self.draw(jax.random.fold_in(jax.random.fold_in(key, i), 1)))(index_E)
        order = jax.random.permutation(jax.random.fold_in(key, _ORDER), self.capacity)
        return jax.tree.map(lambda x: x[order[index_E % self.capacity]], self.pool)

    def empty_buffer(self) -> LevelBuffer:
        """A buffer in which no level was played."""
        nothing = jax.tree.map(
            lambda x: jnp.zeros((self.capacity, *jnp.shape(x)), jnp.asarray(x).dtype), self.example
        )
        return buffer.empty(nothing if self.pool is None else self.pool, self.capacity)


def metrics(knows_success: bool, edits: bool) -> Mapping[str, type[Metric]]:
    """The names of the metrics of a buffer and of episodes, with their reductions."""
    of_all = dict.fromkeys(("levels/score", "levels/staleness", "levels/filled"), LastMean)
    return {**of_all, **of_kinds(knows_success, edits)}


def of_kinds(knows_success: bool, edits: bool) -> Mapping[str, type[Metric]]:
    """The kinds of the metrics about the episodes that ended."""
    names = ["replayed", *(["edited"] if edits else []), *(["new_success_rate"] if knows_success else [])]
    return {f"levels/{name}": Mean for name in names}


def of_buffer(buffer: LevelBuffer, iteration: Array) -> Metrics:
    """Means over the levels of a buffer, before this iteration."""
    filled = buffer.filled.astype(jnp.float32)
    count = filled.sum()
    age = (iteration - 1 - buffer.played).astype(jnp.float32)
    return {
        "levels/score": LastMean((filled * buffer.score).sum(), count),
        "levels/staleness": LastMean((filled * age).sum(), count),
        "levels/filled": LastMean(count, jnp.full((), filled.size, jnp.float32)),
    }


def of_episodes(episodes: EpisodeRows, axis: Axis, knows_success: bool, edits: bool) -> Metrics:
    """Shares of the episodes that ended."""
    kind = episodes.task["kind"]
    ended = episodes.ended
    of_kind = [(ended & (kind == k)).sum(dtype=jnp.float32) for k in (NEW, REPLAYED, EDITED)]
    solved = jnp.zeros(())
    if knows_success:
        assert episodes.success is not None
        solved = jnp.where(ended & (kind == NEW), episodes.success, 0.0).sum()
    new, replayed, edited, solved = axis.psum((*of_kind, solved))
    total = new + replayed + edited
    found: Metrics = {"levels/replayed": Mean(replayed, total)}
    if edits:
        found["levels/edited"] = Mean(edited, total)
    if knows_success:
        found["levels/new_success_rate"] = Mean(solved, new)
    return found
