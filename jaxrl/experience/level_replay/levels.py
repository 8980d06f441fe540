"""Levels: those of an environment, a buffer of them with scores, and the metrics of episodes in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError, LevelsConfig
from jaxrl.config.curriculum import RANK
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import default_task, level_pool, method_of_tasks
from jaxrl.experience.level_replay import distribution
from jaxrl.metrics.reduction import Mean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree

# The kinds of an episode's level.
NEW, REPLAYED, EDITED = range(3)
HIGHLIGHTS = (("levels/replayed", "replayed"), ("levels/new_success_rate", "new levels"))
NOT_FILLED = -1

_ORDER = 0x4F524452  # far above the numbers of levels, which are folded into the same key


@flax.struct.dataclass
class LevelBuffer:
    """C levels, with tasks [C, ...] and scores float32[C].

    Attributes:
      best: float32[C], the highest return in each so far.
      played: int32[C], the iteration in which each was played last.
      born: int32[C], a unique number for each level that came in; -1 if there is none.
      digest: uint32[C], a hash of the task.
      next_born: int32[], episodes in new levels so far that were looked at; numbers from there on are free.
    """

    task: PyTree
    score: Array
    best: Array
    played: Array
    born: Array
    digest: Array
    next_born: Array

    @property
    def filled(self) -> Array:
        """bool[C], where there is a level that was played."""
        return self.born != NOT_FILLED


@flax.struct.dataclass
class NewLevels:
    """K levels that may come in, the highest score first."""

    task: PyTree  # of [K, ...]
    score: Array  # float32[K]
    best: Array  # likewise
    is_one: Array  # bool[K], False if there is none


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
        count = self.capacity
        zeros = jnp.zeros(count, jnp.int32)
        return LevelBuffer(
            task=zero_levels(self.example, count) if self.pool is None else self.pool,
            score=jnp.zeros(count, jnp.float32),
            best=jnp.full(count, -jnp.inf, jnp.float32),
            played=zeros,
            born=zeros + NOT_FILLED,
            digest=zeros.astype(jnp.uint32),
            next_born=jnp.zeros((), jnp.int32),
        )


def zero_levels(example: PyTree, count: int) -> PyTree:
    """Levels [count, ...] of zeros, with the shapes of one."""
    return jax.tree.map(lambda x: jnp.zeros((count, *jnp.shape(x)), jnp.asarray(x).dtype), example)


def chances(levels: LevelsConfig, buffer: LevelBuffer, iteration: Array) -> Array:
    """float32[C], the chance of each level when one is replayed in this iteration."""
    is_rank = levels.prioritization == RANK
    weigh = distribution.rank_weights if is_rank else distribution.proportional_weights
    weight = weigh(buffer.score, buffer.filled, levels.temperature)
    age = (iteration - buffer.played).astype(jnp.float32)
    return distribution.replay_distribution(weight, age, buffer.filled, levels.staleness)


def insert(levels: LevelsConfig, buffer: LevelBuffer, new: NewLevels, iteration: Array) -> LevelBuffer:
    """The buffer with the new levels that find a place in it.

    The best takes an empty place or replaces the level with the lowest chance, the next one takes the
    next place, and so on, each only if its score is above the replaced level's. A level that is in the
    buffer already stays out.
    """
    digest = jax.vmap(_digest_of)(new.task)
    offered = new.is_one.sum(dtype=jnp.int32)
    known = ((digest[:, None] == buffer.digest[None]) & buffer.filled[None]).any(1)
    number = jnp.arange(len(digest))
    earlier = (digest[:, None] == digest[None]) & (number[:, None] > number[None]) & new.is_one[None]
    is_one = new.is_one & ~known & ~earlier.any(1)
    # Those that stay out do not stand in the way of the others.
    order = jnp.argsort(~is_one, stable=True)
    new, digest, is_one = jax.tree.map(lambda x: x[order], (new, digest, is_one))
    chance = jnp.where(buffer.filled, chances(levels, buffer, iteration), -1.0)
    count = len(digest)
    place = jnp.argsort(chance, stable=True)[:count]
    better = ~buffer.filled[place] | (new.score > buffer.score[place])
    place = jnp.where(is_one & better, place, len(chance))  # out of bounds is dropped

    def put(old: Array, x: Array) -> Array:
        return old.at[place].set(x.astype(old.dtype), mode="drop")

    return LevelBuffer(
        task=jax.tree.map(put, buffer.task, new.task),
        score=put(buffer.score, new.score),
        best=put(buffer.best, new.best),
        played=put(buffer.played, jnp.broadcast_to(iteration, (count,))),
        born=put(buffer.born, buffer.next_born + jnp.arange(count)),
        digest=put(buffer.digest, digest),
        next_born=buffer.next_born + offered,
    )


def _digest_of(task: PyTree) -> Array:
    """uint32[], a hash of all numbers of a task."""
    digest = jnp.uint32(0x811C9DC5)
    for leaf in jax.tree.leaves(task):
        kind = jnp.uint32 if leaf.dtype.itemsize == 4 else leaf.dtype
        words = jax.lax.bitcast_convert_type(leaf, kind) if kind == jnp.uint32 else leaf.astype(jnp.uint32)
        flat = words.reshape(-1)
        # Each word is spread by another odd number, so that neither order nor position is lost.
        odd = (2 * jnp.arange(flat.size, dtype=jnp.uint32) + 1) * jnp.uint32(0x9E3779B1)
        mixed = (flat ^ (flat >> 15)) * odd
        mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0x85EBCA6B)
        digest = (digest ^ mixed.sum(dtype=jnp.uint32)) * jnp.uint32(0x01000193)
    return digest


def declared_metrics(knows_success: bool, edits: bool) -> Mapping[str, type[Metric]]:
    """The metrics of `episode_metrics`, with their reductions."""
    names = ["replayed", *(["edited"] if edits else []), *(["new_success_rate"] if knows_success else [])]
    return {f"levels/{name}": Mean for name in names}


def episode_metrics(episodes: EpisodeRows, axis: Axis, knows_success: bool, edits: bool) -> Metrics:
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
