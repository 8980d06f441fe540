"""Gradients of a minibatch in several parts that each fit a cache or memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.sequences import Sequences, join, split
from jaxrl.envs.base import is_large_image
from jaxrl.types import Axis, PyTree

_T = TypeVar("_T")

# Activations of this many time steps stay in a core's cache between the forward and the backward pass, and
# the products are still large enough (docs/performance.md). A product of a recurrent core covers the steps of
# one time only, so that it needs more of them; one large image gives a thousand rows.
CPU_PART_STEPS = {"recurrent": 2048, "feed-forward": 512, "images": 64}


def parts(
    wanted: int, chunks: int, environments: int, length: int, agent: Agent, axis: Axis, obs: PyTree
) -> tuple[int, int]:
    """The number of times that the chunks in time and the groups of environments of a minibatch are divided.

    Args:
      wanted: parts over environments, as configured; 0: on CPU so that each has about `CPU_PART_STEPS` time
        steps, elsewhere one.
      chunks, environments: of a minibatch, whose product is its number of sequences.
      length: time steps of a sequence.
      agent: decides which kind of work it is.
      axis: this device; only its platform counts.
      obs: leaves [T, B, *O]; only shapes count.
    """
    if wanted or axis.platform != "cpu":
        return 1, wanted or 1
    most = environments * chunks * length // CPU_PART_STEPS[_kind_of_work(agent, obs)]
    environment_parts = _largest_divisor(environments, most)
    return _largest_divisor(chunks, most // environment_parts), environment_parts


def sum_of_parts(
    gradient: Callable[[Sequences], tuple[_T, PyTree]], taken: Sequences, divided: tuple[int, int]
) -> tuple[_T, PyTree]:
    """(the sums of a minibatch, its rows [L, N, ...]), part by part.

    Args:
      gradient: of some sequences: (a tree that is summed, a tree of [L, n, ...]).
    """
    if divided == (1, 1):
        return gradient(taken)
    by_part = split(taken, *divided)
    first = jax.tree.map(lambda x: x[0], by_part)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, first)[0])

    def add(total: _T, part: Sequences) -> tuple[_T, PyTree]:
        found, rows = gradient(part)
        return jax.tree.map(jnp.add, total, found), rows

    sums, rows = jax.lax.scan(add, zeros, by_part)
    return sums, jax.tree.map(lambda x: join(x, *divided, *taken.environment.shape), rows)


def _kind_of_work(agent: Agent, obs: PyTree) -> str:
    if any(is_large_image(x.shape[2:]) for x in jax.tree.leaves(obs)):
        return "images"
    return "recurrent" if agent.network.waits_for_the_carry else "feed-forward"


def _largest_divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`, at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(1, most))
