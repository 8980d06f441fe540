"""Hindsight (Andrychowicz et al. 2017): goals that were achieved in place of the original one.

Pure functions of arrays. Steps are known by their age, 0 the oldest that is kept, so that an episode is a
range of ages, also across the end of a ring. The goal achieved after a step is `achieved_goal` of the next
row. There is none if the next row begins another episode, as after a forced restart of an environment, and
for final observations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import HindsightPlan, ReplayPlan
from jaxrl.envs.goals import ACHIEVED, DESIRED, Goals
from jaxrl.experience.replay import ring
from jaxrl.experience.replay.ring import EPISODE, Ring
from jaxrl.types import Array, PyTree

# Attempts to sample a goal from everything that is kept; if all fail, a row keeps its own.
_TRIES = 8
_STREAM = 0x474F414C  # of a draw's key, for what is sampled here


def first_age(number_at: Callable[[Array], Array], number: Array, count: Array, size: int) -> Array:
    """int32[N], the first age whose episode's number is at least `number`; `count` if there is none.

    Args:
      number_at: int32[N] of ages int32[N]; it never falls with the age.
      count: int32[], ages that are kept; at most `size`.
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
    """int32[N] each, of what is kept: the first age of each step's episode, and the age after its last.

    Arguments are those of `first_age`, and the ages int32[N] of the steps.
    """
    number = number_at(age)
    first, after = (first_age(number_at, x, count, size) for x in (number, number + 1))
    return first, after


def chosen_step(
    strategy: str, noise: Array, age: Array, first: Array, last: Array, whole: Array
) -> tuple[Array, Array]:
    """(age int32[N] of the step whose achieved goal is taken, bool[N], True if there is one).

    Args:
      strategy: "future", this step or one of the episode after it, as in the authors' code, since what a step
        achieves comes after it; "final", the episode's last; "episode", any of them. The last two, only of
        episodes that are whole.
      noise: float32[N], uniform on [0, 1).
      age: int32[N], of each step.
      first, last: int32[N], ages of its episode's first and last step whose achieved goal is known.
      whole: bool[N], True if the episode is kept from its first step to its end.
    """
    if strategy == "final":
        return last, whole
    low = age if strategy == "future" else first
    found = low <= last
    span = jnp.maximum(last - low + 1, 1)
    # Rounding may bring the product up to the span.
    offset = jnp.minimum((noise * span.astype(jnp.float32)).astype(jnp.int32), span - 1)
    return low + offset, found if strategy == "future" else found & whole


def exchanges(key: Array, k: int, count: int) -> Array:
    """bool[count], True if each row gets another goal: k of k + 1 do, on average."""
    return jax.random.bernoulli(key, k / (k + 1), (count,))


def tries(key: Array, count: int, members: Array | int, ages: Array) -> tuple[Array, Array]:
    """(member, age) int32[tries, count], uniform below `members` and `ages`."""
    member_key, age_key = jax.random.split(key)
    shape = (_TRIES, count)
    member = jax.random.randint(member_key, shape, 0, members)
    return member, jax.random.randint(age_key, shape, 0, jnp.maximum(ages, 1))


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


@flax.struct.dataclass
class NewGoals:
    """[N, G] goals, and bool[N], True if a row gets its one; the others keep their own."""

    goal: Array
    exchanged: Array


def new_goals(plan: ReplayPlan, state: Ring, keys: Array, env: Array, row: Array) -> NewGoals:
    """Goals for the rows (env, row) int32[N] sampled group by group, with the keys [groups] of the draw."""
    asked = plan.hindsight
    assert asked is not None
    groups = len(keys)
    each = len(row) // len(keys)
    members = state.rows["reward"].shape[1] // groups
    keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, _STREAM)))(keys)
    exchanged = jax.vmap(lambda key: exchanges(key, asked.k, each))(keys[:, 0]).reshape(-1)
    if asked.strategy == "random":
        member, age = jax.vmap(lambda key: tries(key, each, members, state.count))(keys[:, 1])
        of_group = member + (jnp.arange(groups) * members)[:, None, None]
        goal, found = _any_goal(state, *(x.swapaxes(0, 1).reshape(-1, len(row)) for x in (of_group, age)))
    else:
        noise = jax.vmap(lambda key: jax.random.uniform(key, (each,), jnp.float32))(keys[:, 1]).reshape(-1)
        age = (row - state.oldest) % state.size
        step, found = chosen_step(asked.strategy, noise, age, *_episodes(state, env, age))
        goal = _achieved_goals(state, state.oldest + step + 1, env)
    known = ~ring.take_rows(state.rows["reset"], row + 1, env)
    return NewGoals(goal, exchanged & found & known)


def with_new_facts(
    asked: HindsightPlan, state: Ring, window: Array, env: Array, facts: dict[str, Array], new: NewGoals
) -> dict[str, Array]:
    """Rewards and terminations of windows by the new goals.

    Args:
      window: int32[K + 1, N], rows of each window.
      env: int32[N].
      facts: `reward`, `terminated` and `reset` of the windows, [K + 1, N].
    """
    old = facts["reward"][:-1], facts["terminated"][:-1]
    achieved = _achieved_goals(state, window[1:], env)
    reward, terminated = recompute_rewards(asked.goals, achieved, new.goal, new.exchanged, old)
    # Without a next row nothing is known of a step: with a new goal it does not count.
    terminated = terminated & ~(new.exchanged[None] & facts["reset"][1:])
    written = {"reward": reward, "terminated": terminated}
    return facts | {name: facts[name].at[:-1].set(x) for name, x in written.items()}


def _achieved_goals(state: Ring, row: Array, env: Array) -> Array:
    """[..., N, G], what was achieved when each row began."""
    obs: dict[str, Any] = state.rows["obs"]
    return ring.take_rows(obs[ACHIEVED], row, env)


def _episodes(state: Ring, env: Array, age: Array) -> tuple[Array, Array, Array]:
    """(first, last, whole) of the episodes of steps by their age int32[N], see `chosen_step`."""
    at = lambda name, age: ring.take_rows(state.rows[name], state.oldest + age, env)  # noqa: E731
    numbers = functools.partial(at, EPISODE)
    first, after = episode_ages(numbers, age, state.count, state.size)
    # A final observation is a separate row; if there is none, the episode continues or was cut by force.
    whole = at("reset", first) & ~at("valid", after - 1)
    return first, after - 2, whole


def _any_goal(state: Ring, env: Array, age: Array) -> tuple[Array, Array]:
    """(goal [N, G], bool[N], True if there is one), of the first try int32[tries, N] that is a step's."""
    row = state.oldest + age
    hits = (age > 0) & ~ring.take_rows(state.rows["reset"], row, env)
    goal = _achieved_goals(state, row, env)
    best = jnp.argmax(hits, axis=0).reshape(1, -1, *(1,) * (goal.ndim - 2))
    return jnp.take_along_axis(goal, best, axis=0)[0], hits.any(axis=0)
