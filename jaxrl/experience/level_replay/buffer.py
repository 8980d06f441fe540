"""Levels with their scores: which are kept, and with which chance each is played again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import LevelsConfig
from jaxrl.config.curriculum import RANK
from jaxrl.experience.level_replay import distribution
from jaxrl.types import Array, PyTree

_NOT_FILLED = -1


@flax.struct.dataclass
class LevelBuffer:
    """C levels.

    Attributes:
      task: tree of [C, ...].
      score: float32[C].
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
        return self.born != _NOT_FILLED


@flax.struct.dataclass
class NewLevels:
    """K levels that may come in, the highest score first.

    Attributes:
      task: tree of [K, ...].
      score, best: float32[K].
      is_one: bool[K], False if there is none.
    """

    task: PyTree
    score: Array
    best: Array
    is_one: Array


@dataclass(frozen=True)
class ReplayRule:
    """The rule by which chances follow from scores and ages; see `LevelsConfig`."""

    levels: LevelsConfig

    def chances(self, buffer: LevelBuffer, iteration: Array) -> Array:
        """float32[C], the chance of each level when one is replayed in this iteration."""
        weigh = (
            distribution.rank_weights
            if self.levels.prioritization == RANK
            else distribution.proportional_weights
        )
        weight = weigh(buffer.score, buffer.filled, self.levels.temperature)
        age = (iteration - buffer.played).astype(jnp.float32)
        return distribution.replay_distribution(weight, age, buffer.filled, self.levels.staleness)

    def insert(self, buffer: LevelBuffer, new: NewLevels, iteration: Array) -> LevelBuffer:
        """The buffer with the new levels that find a place in it.

        The best takes an empty place or replaces the level with the lowest chance, the next one takes the
        next place, and so on, each only if its score is above the replaced level's. A level that is in the
        buffer already stays out.
        """
        digest = jax.vmap(digest_of)(new.task)
        offered = new.is_one.sum(dtype=jnp.int32)
        known = ((digest[:, None] == buffer.digest[None]) & buffer.filled[None]).any(1)
        number = jnp.arange(len(digest))
        earlier = (digest[:, None] == digest[None]) & (number[:, None] > number[None]) & new.is_one[None]
        is_one = new.is_one & ~known & ~earlier.any(1)
        # Those that stay out do not stand in the way of the others.
        order = jnp.argsort(~is_one, stable=True)
        new, digest, is_one = jax.tree.map(lambda x: x[order], (new, digest, is_one))
        chance = jnp.where(buffer.filled, self.chances(buffer, iteration), -1.0)
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

    def update(
        self, buffer: LevelBuffer, played: PlayedLevels, iteration: Array, is_pool: bool
    ) -> LevelBuffer:
        """The buffer after episodes in its levels; one that was never played before is filled by it."""
        scored = played.count > 0
        born = buffer.born
        if is_pool:
            born = jnp.where(scored & (born == _NOT_FILLED), iteration, born)
        return dataclasses.replace(
            buffer,
            score=jnp.where(scored, played.score / jnp.maximum(played.count, 1.0), buffer.score),
            best=jnp.maximum(buffer.best, played.best),
            played=jnp.where(played.seen, iteration, buffer.played),
            born=born,
        )


@flax.struct.dataclass
class PlayedLevels:
    """The episodes of a rollout in the levels of a buffer; [C].

    Attributes:
      score: float32, the sum of the scores of those that ended.
      count: float32, how many ended.
      best: float32, the highest return of these; minus infinity without one.
      seen: bool, True if any step was made in the level.
    """

    score: Array
    count: Array
    best: Array
    seen: Array


def empty(task: PyTree, count: int) -> LevelBuffer:
    """A buffer of unplayed tasks [count, ...]."""
    zeros = jnp.zeros(count, jnp.int32)
    return LevelBuffer(
        task=task,
        score=jnp.zeros(count, jnp.float32),
        best=jnp.full(count, -jnp.inf, jnp.float32),
        played=zeros,
        born=zeros + _NOT_FILLED,
        digest=zeros.astype(jnp.uint32),
        next_born=jnp.zeros((), jnp.int32),
    )


def digest_of(task: PyTree) -> Array:
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
