"""Scores of levels, and their chances to be played again (Jiang et al. 2021, section 3)."""

from __future__ import annotations

import chex
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config.curriculum import L1_VALUE_LOSS, MAX_MONTE_CARLO, POSITIVE_VALUE_LOSS
from jaxrl.types import Array, EpisodeRows

# The signal that each score is made of.
SIGNALS = {POSITIVE_VALUE_LOSS: "advantage", L1_VALUE_LOSS: "advantage", MAX_MONTE_CARLO: "value"}


def rank_weights(score: Array, filled: Array, temperature: float) -> Array:
    """float32[n], (1 / rank)^(1 / temperature) of each filled level by its score; the highest has rank 1.

    Levels of equal score have the mean of the weights of their ranks: their order decides nothing. Those that
    are not filled have weight 0.
    """
    chex.assert_rank([score, filled], 1)
    order = jnp.argsort(jnp.where(filled, -score, jnp.inf), stable=True)
    there = filled[order]
    ranked = score[order]
    rank = jnp.arange(1, len(score) + 1, dtype=jnp.float32)
    weight = jnp.where(there, rank ** (-1.0 / temperature), 0.0)
    differs = jnp.concatenate([jnp.zeros(1, bool), (ranked[1:] != ranked[:-1]) | ~there[1:]])
    group = jnp.cumsum(differs)
    total = jax.ops.segment_sum(weight, group, len(score))
    size = jax.ops.segment_sum(jnp.ones_like(weight), group, len(score))
    shared = (total / jnp.maximum(size, 1.0))[group]
    return jnp.zeros_like(score).at[order].set(jnp.where(there, shared, 0.0))


def proportional_weights(score: Array, filled: Array, temperature: float) -> Array:
    """float32[n], score^(1 / temperature) of each filled level, scores below 0 as 0; arguments as above."""
    chex.assert_rank([score, filled], 1)
    positive = jnp.where(filled, jnp.maximum(score, 0.0), 0.0)
    # Relative to the largest, or a power would leave the range of float32.
    largest = jnp.maximum(positive.max(), jnp.finfo(jnp.float32).tiny)
    return jnp.where(positive > 0, (positive / largest) ** (1.0 / temperature), 0.0)


def replay_distribution(weight: Array, age: Array, filled: Array, staleness: float) -> Array:
    """float32[n], chances that sum to 1: P = (1 - staleness) P_S + staleness P_C; all 0 if none is filled.

    P_S is proportional to the weights of scores, P_C to the ages. Where all of one are 0, each filled level
    has the same chance.

    Args:
      weight: float32[n], at least 0.
      age: float32[n], how long ago each was played last.
      staleness: from 0 to 1.
    """
    chex.assert_rank([weight, age, filled], 1)

    def chances(x: Array) -> Array:
        x = jnp.where(filled, x, 0.0)
        total = x.sum()
        even = filled.astype(jnp.float32) / jnp.maximum(filled.sum(dtype=jnp.float32), 1.0)
        return jnp.where(total > 0, x / jnp.where(total > 0, total, 1.0), even)

    return (1.0 - staleness) * chances(weight) + staleness * chances(age)


def draw(chance: Array, uniform: Array) -> Array:
    """int32[...], indices sampled with these chances float32[n], by random numbers in [0, 1) float32[...].

    None of chance 0 is sampled, unless all have it.
    """
    chex.assert_rank(chance, 1)
    cumulative = jnp.cumsum(chance)
    index = jnp.searchsorted(cumulative, uniform * cumulative[-1], side="right").astype(jnp.int32)
    # Rounding may lead past the last one that has a chance.
    last = jnp.max(jnp.where(chance > 0, jnp.arange(len(chance), dtype=jnp.int32), 0))
    return jnp.minimum(index, last)


@flax.struct.dataclass
class EpisodeSums:
    """Of episodes in progress, float32[N]: the `total` of the numbers that a score averages, in `steps`."""

    total: Array
    steps: Array


def step_numbers(kind: str, signal: Array) -> Array:
    """float32, the numbers of steps whose mean over an episode makes a score of this kind."""
    if kind == POSITIVE_VALUE_LOSS:
        return jnp.maximum(signal, 0.0)
    return jnp.abs(signal) if kind == L1_VALUE_LOSS else signal


def episode_means(sums: EpisodeSums, x_TB: Array, episodes: EpisodeRows) -> tuple[EpisodeSums, Array]:
    """The sums [B] after a rollout; float32[T, B], the mean of each episode so far, up to and with each row.

    Args:
      sums: of this device's environments, before the rollout.
      x_TB: float32, of `step_numbers`.
    """

    def step(at: EpisodeSums, row: tuple[Array, Array, Array]) -> tuple[EpisodeSums, Array]:
        x, is_step, done = row
        total = at.total + jnp.where(is_step, x, 0.0)
        steps = at.steps + is_step.astype(jnp.float32)
        after = EpisodeSums(jnp.where(done, 0.0, total), jnp.where(done, 0.0, steps))
        return after, total / jnp.maximum(steps, 1.0)

    is_step = jnp.ones_like(episodes.done) if episodes.valid is None else episodes.valid
    return jax.lax.scan(step, sums, (x_TB, is_step, episodes.done))


def level_scores(kind: str, mean: Array, best: Array) -> Array:
    """float32, scores of levels from the means of episodes in them.

      positive_value_loss   mean of max(A_t, 0)      (Jiang et al. 2021b, "Replay-Guided Adversarial
                                                      Environment Design", section 4)
      l1_value_loss         mean of |A_t|            (Jiang et al. 2021)
      max_mc                max R - mean of V(s_t)   (Jiang et al. 2021b)

    A is the advantage that the algorithm learns from, by GAE if it has lambda, and max R is `best`, the
    highest return in the level so far.
    """
    return best - mean if kind == MAX_MONTE_CARLO else mean
