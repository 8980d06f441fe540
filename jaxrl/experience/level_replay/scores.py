"""Scores of levels from an algorithm's signals of each step, over whole episodes."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config.levels import L1_VALUE_LOSS, MAX_MONTE_CARLO, POSITIVE_VALUE_LOSS
from jaxrl.types import Array, EpisodeRows

# The signal that each score is made of.
SIGNALS = {POSITIVE_VALUE_LOSS: "advantage", L1_VALUE_LOSS: "advantage", MAX_MONTE_CARLO: "value"}


@flax.struct.dataclass
class EpisodeSums:
    """Sums over the steps so far of the episodes in progress; float32[N].

    Attributes:
      total: of the numbers that a score averages.
      steps: how many.
    """

    total: Array
    steps: Array


def no_sums(count: int) -> EpisodeSums:
    """The sums of `count` episodes that are about to begin: zeros."""
    return EpisodeSums(jnp.zeros(count), jnp.zeros(count))


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
      episodes: of the rollout.
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

    A is the advantage that the algorithm learns from, by GAE if it has lambda.

    Args:
      kind: of score.
      mean: of an episode.
      best: the highest return in the level so far.
    """
    return best - mean if kind == MAX_MONTE_CARLO else mean
