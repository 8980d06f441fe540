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

    def leaves(self, leaf: Array) -> Array:
        """float32[B, size], 0 where an item may not be drawn."""
        age = (jnp.arange(self.size) - self.oldest) % self.size
        return jnp.where((age < self.complete)[None], leaf, 0.0)


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
        leaves = places.leaves(leaf).reshape(groups, -1)
        few = plan.axis.pays_for_launches
        at, found = jax.vmap(lambda k, w: sampling.draw_weighted(k, w, each, few))(keys, leaves)
        env, item = first + at // places.size, at % places.size
        total = jnp.maximum(leaves.sum(axis=1, keepdims=True), jnp.finfo(jnp.float32).tiny)
        probability = jnp.where(found, jnp.take_along_axis(leaves, at, axis=1) / total, 0.0) / plan.groups
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
    may_be_drawn = (places.leaves(leaf) > 0).sum(dtype=jnp.float32)
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
