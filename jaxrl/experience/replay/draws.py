"""Draws from all environments: equal shares of groups of neighbours, each by a key of its own."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.experience.replay import priorities, sampling
from jaxrl.types import Array


@dataclass(frozen=True)
class Places:
    """The items of each environment, rows or sequences, that may be drawn: the oldest ones of a ring.

    Attributes:
      envs: environments of this device, B.
      size: items of each that the ring can hold.
      oldest: int32[], where the oldest lies.
      complete: int32[], items of each, from the oldest on, that may be drawn.
    """

    envs: int
    size: int
    oldest: Array
    complete: Array

    @property
    def allowed(self) -> Array:
        """bool[size], whether an item may be drawn."""
        age: Array = (jnp.arange(self.size) - self.oldest) % self.size
        return age < self.complete


def keys_of_groups(plan: ReplayPlan, key: Array) -> Array:
    """[groups] keys of this device's groups, the same however many devices there are."""
    groups = plan.groups // plan.axis.size
    index = plan.axis.index() * groups + jnp.arange(groups)
    keys: Array = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
    return keys


def draw(plan: ReplayPlan, places: Places, leaf: Array | None, key: Array) -> tuple[Array, Array, Array]:
    """(env, item, probability) [N] of what was drawn; the probability is 0 where there was nothing.

    Args:
      plan: the batch size, over all devices, and the groups.
      places: of this device.
      leaf: float32[B, size], see `priorities`; None: all alike.
      key: equal on all devices.
    """
    groups = plan.groups // plan.axis.size
    members, each = places.envs // groups, plan.batch_size // plan.groups
    keys, complete = keys_of_groups(plan, key), places.complete
    first = jnp.arange(groups)[:, None] * members
    if leaf is None:
        size = members * complete
        at, found = jax.vmap(lambda k: sampling.draw_uniform(k, size, each))(keys)
        span = jnp.maximum(complete, 1)
        env, item = first + at // span, places.oldest + at % span
        probability = found.astype(jnp.float32) / (jnp.maximum(size, 1).astype(jnp.float32) * plan.groups)
    else:
        by_group, allowed = leaf.reshape(groups, members, places.size), places.allowed
        if plan.axis.pays_for_launches:
            leaves = jnp.where(allowed[None, None], by_group, 0.0).reshape(groups, -1)
            at, found = jax.vmap(lambda k, w: sampling.by_race(k, w, each))(keys, leaves)
            total = leaves.sum(axis=1)
        else:
            at, found = jax.vmap(lambda k, w: sampling.in_turn(k, w, each, allowed))(keys, by_group)
            total = jax.vmap(lambda w: sampling.block_sums(w, allowed).sum())(by_group)
        env, item = first + at // places.size, at % places.size
        total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)[:, None]
        probability = jnp.where(found, leaf[env, item] / total, 0.0) / plan.groups
    return env.reshape(-1), item.reshape(-1), probability.reshape(-1)


def weights(plan: ReplayPlan, places: Places, leaf: Array | None, draws: Array, probability: Array) -> Array:
    """float32[N], importance weights over the largest of the batch on all devices.

    Args:
      plan, places, leaf: as for `draw`.
      draws: int32[], made before.
      probability: float32[N], of `draw`.
    """
    if plan.priorities is None or leaf is None:
        return jnp.ones_like(probability)
    may_be_drawn = ((leaf > 0) & places.allowed[None]).sum(dtype=jnp.int32).astype(jnp.float32)
    count = plan.axis.psum(may_be_drawn)
    beta = priorities.beta_at(draws, plan.priorities.beta_start, plan.priorities.beta_draws)
    weight = priorities.importance(probability, count, beta)
    largest = plan.axis.gather(weight.max()).max()
    return weight / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)


def with_errors(
    plan: ReplayPlan, leaf: Array | None, where: tuple[Array, Array], error: Array, usable: Array
) -> Array | None:
    """`leaf` with those of the TD errors float32[N] at (env, item); None without priorities."""
    if plan.priorities is None or leaf is None:
        return leaf
    return priorities.updated(leaf, where, priorities.leaf_of(error, plan.priorities.alpha), usable)
