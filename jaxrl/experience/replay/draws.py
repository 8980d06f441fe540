"""Sampling from all environments: equal shares of groups of neighbours, each by its own key.

With priorities (Schaul et al. 2016) a row's leaf is |TD| + 1e-5 to the power of alpha, which is in proportion
to the probability of sampling it. 0: never sampled.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.experience.replay import priority_tree, sampling
from jaxrl.experience.replay.priority_tree import PriorityTree
from jaxrl.experience.replay.sampling import Groups, Places
from jaxrl.types import Array

_EPSILON = 1e-5


def draw(
    plan: ReplayPlan, places: Places, tree: PriorityTree | None, key: Array
) -> tuple[Array, Array, Array]:
    """(env, item, probability) [N] of what was sampled; the probability is 0 if there was nothing.

    Args:
      plan: the batch size, over all devices, and the groups.
      tree: priorities of this device; None: all alike.
      key: equal on all devices.
    """
    groups = Groups.of(plan)
    members = places.envs // groups.here
    complete = places.complete
    if tree is None:
        size = members * complete
        of_all, found = sampling.draw_uniform(key, size, groups.each, groups.total)
        at = groups.take(of_all)
        span = jnp.maximum(complete, 1)
        found = jnp.broadcast_to(found[None], at.shape)
        env, item = _divide(at, members, span)
        item = places.oldest + item
        probability = found.astype(jnp.float32) / (jnp.maximum(size, 1).astype(jnp.float32) * groups.total)
    else:
        stride = tree.leaf.shape[1]
        if plan.axis.pays_for_launches:
            leaves = jnp.where(places.allow(jnp.arange(stride))[None], tree.leaf, 0.0)
            race = jax.vmap(lambda k, w: sampling.by_race(k, w, groups.each))
            at, found = race(groups.keys(key), leaves.reshape(groups.here, -1))
            total = tree.total.reshape(groups.here, -1).sum(axis=1)
        else:
            at, found, total = priority_tree.in_turn(tree, places, groups, key)
        first = jnp.arange(groups.here)[:, None] * members * stride
        leaf = tree.leaf.reshape(-1).at[(first + at).astype(jnp.uint32)].get(mode="promise_in_bounds")
        env, item = _divide(at, members, jnp.int32(stride))
        total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)[:, None]
        probability = jnp.where(found, leaf / total, 0.0) / groups.total
    return env.reshape(-1), item.reshape(-1), probability.reshape(-1)


def _divide(at: Array, members: int, span: Array) -> tuple[Array, Array]:
    """(env, item) int32[groups, each] of indices into the items of a group, `span` of each environment."""
    # Without a sign and divided last: see `places.wrap`.
    first = jnp.arange(len(at))[:, None] * members * span
    of_all = (first + at).astype(jnp.uint32)
    by = span.astype(jnp.uint32)
    return (of_all // by).astype(jnp.int32), (of_all % by).astype(jnp.int32)


def weights(plan: ReplayPlan, tree: PriorityTree | None, draws: Array, probability: Array) -> Array:
    """float32[N], importance weights over the largest of the batch on all devices.

    `draws` int32[] were made before; the probabilities are those of `draw`.
    """
    if plan.priorities is None or tree is None:
        return jnp.ones_like(probability)
    count = plan.axis.psum(tree.count.sum().astype(jnp.float32))
    beta = beta_at(draws, plan.priorities.beta_start, plan.priorities.beta_draws)
    weight = importance(probability, count, beta)
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
    """`tree` with the priorities of TD errors float32[N] at (env, item); None without priorities."""
    if plan.priorities is None or tree is None:
        return tree
    return priority_tree.update(tree, where, leaf_of(error, plan.priorities.alpha), usable, places)


def leaf_of(error: Array, alpha: float) -> Array:
    """float32[...], (|error| + 1e-5)^alpha of TD errors, never 0: a row that can be sampled remains one."""
    leaf: Array = (jnp.abs(error) + _EPSILON) ** alpha
    return jnp.maximum(leaf, jnp.finfo(jnp.float32).tiny)


def leaf_of_new(largest: Array) -> Array:
    """float32[], the leaf of new rows: the largest in the buffer; 1, if it holds nothing."""
    return jnp.where(largest > 0, largest, 1.0)


def beta_at(draws: Array, start: float, planned: int) -> Array:
    """float32[], beta of the next draw: linear from `start` to 1 over the planned draws."""
    progress = jnp.minimum(draws.astype(jnp.float32) / planned, 1.0)
    return start + progress * (1.0 - start)


def importance(probability: Array, count: Array, beta: Array) -> Array:
    """float32[...], (N P)^-beta of N rows that may be sampled; 0 where the probability P is 0.

    Divided by the largest of the batch they are the importance weights.
    """
    drawn = probability > 0
    return jnp.where(drawn, jnp.where(drawn, probability * count, 1.0) ** -beta, 0.0)
