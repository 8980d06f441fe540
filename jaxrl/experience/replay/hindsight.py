"""Hindsight (Andrychowicz et al. 2017): goals that were achieved in place of the original one.

Pure functions of arrays. Steps are known by their age, 0 the oldest that is kept, so that an episode is a
range of ages, also across the end of a ring.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.goals import DESIRED, Goals
from jaxrl.types import Array, PyTree

# Attempts to sample a goal from everything that is kept; if all fail, a row keeps its own.
_TRIES = 8


@flax.struct.dataclass
class EpisodeSpans:
    """The episode of each of N steps, as far as it is kept.

    Attributes:
      first, last: int32[N], ages of its first and last step whose achieved goal is known.
      whole: bool[N], True if it is kept from its first step to its end.
    """

    first: Array
    last: Array
    whole: Array


def first_age(number_at: Callable[[Array], Array], number: Array, count: Array, size: int) -> Array:
    """int32[N], the first age whose episode's number is at least `number`; `count` if there is none.

    Args:
      number_at: int32[N] of ages int32[N]; it never falls with the age.
      number: int32[N].
      count: int32[], ages that are kept.
      size: `count` at most.
    """

    def halved(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) // 2
        later = number_at(jnp.minimum(middle, size - 1)) < number
        is_open = low < high
        return jnp.where(is_open & later, middle + 1, low), jnp.where(is_open & ~later, middle, high)

    start = jnp.zeros_like(number), jnp.broadcast_to(count, number.shape).astype(number.dtype)
    return jax.lax.fori_loop(0, size.bit_length(), halved, start)[0]


def episode_ages(
    number_at: Callable[[Array], Array], age: Array, count: Array, size: int
) -> tuple[Array, Array]:
    """(int32[N] the first age of the episode of each step, int32[N] the age after its last), of what is kept.

    Args:
      number_at, count, size: as for `first_age`.
      age: int32[N], of each step.
    """
    number = number_at(age)
    first, after = (first_age(number_at, x, count, size) for x in (number, number + 1))
    return first, after


def chosen_step(strategy: str, noise: Array, age: Array, episodes: EpisodeSpans) -> tuple[Array, Array]:
    """(age int32[N] of the step whose achieved goal is taken, bool[N], True if there is one).

    Args:
      strategy: "future", this step or one of the episode after it, as in the authors' code, since what a step
        achieves comes after it; "final", the episode's last; "episode", any of them. The last two, only of
        episodes that are whole.
      noise: float32[N], uniform on [0, 1).
      age: int32[N], of each step.
      episodes: of the steps.
    """
    if strategy == "final":
        return episodes.last, episodes.whole
    low = age if strategy == "future" else episodes.first
    found = low <= episodes.last
    span = jnp.maximum(episodes.last - low + 1, 1)
    # Rounding may bring the product up to the span.
    offset = jnp.minimum((noise * span.astype(jnp.float32)).astype(jnp.int32), span - 1)
    return low + offset, found if strategy == "future" else found & episodes.whole


def exchanges(key: Array, k: int, count: int) -> Array:
    """bool[count], True if each row gets another goal: k of k + 1 do, on average."""
    return jax.random.bernoulli(key, k / (k + 1), (count,))


def tries(key: Array, count: int, members: Array | int, ages: Array) -> tuple[Array, Array]:
    """(member, age) int32[tries, count], uniform below `members` and `ages`."""
    member_key, age_key = jax.random.split(key)
    shape = (_TRIES, count)
    member = jax.random.randint(member_key, shape, 0, members)
    return member, jax.random.randint(age_key, shape, 0, jnp.maximum(ages, 1))


def first_hit(goal: Array, hits: Array) -> tuple[Array, Array]:
    """(goal [N, G] of the first try that hits, bool[N], True if one does).

    Args:
      goal: [tries, N, G].
      hits: bool[tries, N].
    """
    best = jnp.argmax(hits, axis=0)
    index = best.reshape(1, -1, *(1,) * (goal.ndim - 2))
    return jnp.take_along_axis(goal, index, axis=0)[0], hits.any(axis=0)


def recompute_rewards(
    goals: Goals, achieved: Array, goal: Array, exchanged: Array, facts: tuple[Array, Array]
) -> tuple[Array, Array]:
    """(reward float32[..., N], terminated bool[..., N]) of steps, by their new goal where it was exchanged.

    Args:
      achieved: [..., N, G], after each step.
      goal: [N, G].
      exchanged: bool[N].
      facts: reward and terminated, as they were.
    """
    desired = jnp.broadcast_to(goal, achieved.shape)
    reward = goals.compute_reward(achieved, desired).astype(jnp.float32)
    terminated = goals.compute_terminated(achieved, desired)
    return jnp.where(exchanged, reward, facts[0]), jnp.where(exchanged, terminated, facts[1])


def with_goal(obs: dict[str, PyTree], goal: Array, exchanged: Array) -> dict[str, PyTree]:
    """Observations [N, ...] that ask for the goal [N, G] where it was exchanged."""
    where = exchanged.reshape(-1, *(1,) * (goal.ndim - 1))
    return obs | {DESIRED: jnp.where(where, goal.astype(obs[DESIRED].dtype), obs[DESIRED])}
