"""Draws from all environments: equal shares of groups of neighbours, each by a key of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.experience.replay import priorities, priority_tree, sampling
from jaxrl.experience.replay.places import Places
from jaxrl.experience.replay.priority_tree import PriorityTree
from jaxrl.types import Array


def keys_of_groups(plan: ReplayPlan, key: Array) -> Array:
    """[groups] keys of this device's groups, the same however many devices there are."""
    groups = plan.groups // plan.axis.size
    index = plan.axis.index() * groups + jnp.arange(groups)
    keys: Array = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
    return keys


def draw(
    plan: ReplayPlan, places: Places, tree: PriorityTree | None, key: Array
) -> tuple[Array, Array, Array]:
    """(env, item, probability) [N] of what was drawn; the probability is 0 where there was nothing.

    Args:
      plan: the batch size, over all devices, and the groups.
      places: of this device.
      tree: priorities of this device; None: all alike.
      key: equal on all devices.
    """
    groups = plan.groups // plan.axis.size
    members, each = places.envs // groups, plan.batch_size // plan.groups
    complete = places.complete
    first = jnp.arange(groups)[:, None] * members
    if tree is None:
        size = members * complete
        of_all, found = sampling.draw_uniform(key, size, each, plan.groups)
        at = jax.lax.dynamic_slice_in_dim(of_all, plan.axis.index() * groups, groups)
        found = jnp.broadcast_to(found[None], at.shape)
        span = jnp.maximum(complete, 1)
        env, item = first + at // span, places.oldest + at % span
        probability = found.astype(jnp.float32) / (jnp.maximum(size, 1).astype(jnp.float32) * plan.groups)
    else:
        keys, stride = keys_of_groups(plan, key), tree.leaf.shape[1]
        if plan.axis.pays_for_launches:
            leaves = jnp.where(places.allow(jnp.arange(stride))[None], tree.leaf, 0.0).reshape(groups, -1)
            at, found = jax.vmap(lambda k, w: sampling.by_race(k, w, each))(keys, leaves)
        else:
            at, found = priority_tree.in_turn(tree, places, keys, each)
        env, item = first + at // stride, at % stride
        total = jnp.maximum(priority_tree.group_totals(tree, groups), jnp.finfo(jnp.float32).tiny)[:, None]
        probability = jnp.where(found, tree.leaf[env, item] / total, 0.0) / plan.groups
    return env.reshape(-1), item.reshape(-1), probability.reshape(-1)


def weights(plan: ReplayPlan, tree: PriorityTree | None, draws: Array, probability: Array) -> Array:
    """float32[N], importance weights over the largest of the batch on all devices.

    Args:
      plan, tree: as for `draw`.
      draws: int32[], made before.
      probability: float32[N], of `draw`.
    """
    if plan.priorities is None or tree is None:
        return jnp.ones_like(probability)
    count = plan.axis.psum(tree.count.sum().astype(jnp.float32))
    beta = priorities.beta_at(draws, plan.priorities.beta_start, plan.priorities.beta_draws)
    weight = priorities.importance(probability, count, beta)
    largest = plan.axis.gather(weight.max()).max()
    return weight / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)


def with_errors(
    plan: ReplayPlan,
    tree: PriorityTree | None,
    places: Places,
    where: tuple[Array, Array],
    error: Array,
    usable: Array,
) -> PriorityTree | None:
    """`tree` with those of the TD errors float32[N] at (env, item); None without priorities."""
    if plan.priorities is None or tree is None:
        return tree
    return priority_tree.update(tree, where, priorities.leaf_of(error, plan.priorities.alpha), usable, places)
