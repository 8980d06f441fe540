"""New goals for rows that were sampled from a ring, by the rules of `hindsight`.

The goal achieved after a step is `achieved_goal` of the next row. There is none if the next row begins
another episode, as after a forced restart of an environment, and for final observations.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import HindsightPlan, ReplayPlan
from jaxrl.envs.goals import ACHIEVED
from jaxrl.experience.replay import hindsight, ring
from jaxrl.experience.replay.hindsight import EpisodeSpans
from jaxrl.experience.replay.ring import EPISODE, Ring
from jaxrl.types import Array, PyTree

_STREAM = 0x474F414C  # of a draw's key, for what is sampled here


@flax.struct.dataclass
class NewGoals:
    """[N, G] goals, and bool[N], True if a row gets its one; the others keep their own."""

    goal: Array
    exchanged: Array

    def exchange_in(self, obs: PyTree) -> PyTree:
        """Observations [N, ...] with these goals."""
        return hindsight.with_goal(obs, self.goal, self.exchanged)


def new_goals(plan: ReplayPlan, state: Ring, keys: Array, env: Array, row: Array) -> NewGoals:
    """Goals for the rows sampled by each of the groups.

    Args:
      keys: [groups], of this device's groups in this draw.
      env, row: int32[N], the rows sampled, group by group.
    """
    asked = plan.hindsight
    assert asked is not None
    groups = len(keys)
    each = len(row) // len(keys)
    members = state.rows["reward"].shape[1] // groups
    keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, _STREAM)))(keys)
    exchanged = jax.vmap(lambda key: hindsight.exchanges(key, asked.k, each))(keys[:, 0]).reshape(-1)
    if asked.strategy == "random":
        member, age = jax.vmap(lambda key: hindsight.tries(key, each, members, state.count))(keys[:, 1])
        of_group = member + (jnp.arange(groups) * members)[:, None, None]
        goal, found = _any_goal(state, *(x.swapaxes(0, 1).reshape(-1, len(row)) for x in (of_group, age)))
    else:
        noise = jax.vmap(lambda key: jax.random.uniform(key, (each,), jnp.float32))(keys[:, 1]).reshape(-1)
        age = (row - state.oldest) % state.size
        step, found = hindsight.chosen_step(asked.strategy, noise, age, _episodes(state, env, age))
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
      new: of their first rows.
    """
    old = facts["reward"][:-1], facts["terminated"][:-1]
    achieved = _achieved_goals(state, window[1:], env)
    reward, terminated = hindsight.recompute_rewards(asked.goals, achieved, new.goal, new.exchanged, old)
    # Without a next row nothing is known of a step: with a new goal it does not count.
    terminated = terminated & ~(new.exchanged[None] & facts["reset"][1:])
    written = {"reward": reward, "terminated": terminated}
    return facts | {name: facts[name].at[:-1].set(x) for name, x in written.items()}


def _achieved_goals(state: Ring, row: Array, env: Array) -> Array:
    """[..., N, G], what was achieved when each row began."""
    obs: dict[str, Any] = state.rows["obs"]
    return ring.take_rows(obs[ACHIEVED], row, env)


def _episodes(state: Ring, env: Array, age: Array) -> EpisodeSpans:
    """The episodes of steps by their age int32[N]."""
    at = lambda name, age: ring.take_rows(state.rows[name], state.oldest + age, env)  # noqa: E731
    numbers = functools.partial(at, EPISODE)
    first, after = hindsight.episode_ages(numbers, age, state.count, state.size)
    # A final observation is a separate row; if there is none, the episode continues or was cut by force.
    whole = at("reset", first) & ~at("valid", after - 1)
    return EpisodeSpans(first, after - 2, whole)


def _any_goal(state: Ring, env: Array, age: Array) -> tuple[Array, Array]:
    """(goal [N, G], bool[N], True if there is one), of the first try int32[tries, N] that is a step's."""
    shape = age.shape
    env = env.reshape(-1)
    row = state.oldest + age.reshape(-1)
    hits = (age.reshape(-1) > 0) & ~ring.take_rows(state.rows["reset"], row, env)
    goal = _achieved_goals(state, row, env)
    return hindsight.first_hit(goal.reshape(*shape, *goal.shape[1:]), hits.reshape(shape))
