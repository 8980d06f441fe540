"""Gradients of a minibatch in several parts that each fit a cache or memory."""

from __future__ import annotations

import jax

from jaxrl.algorithms.agent import Agent
from jaxrl.envs.base import is_large_image
from jaxrl.types import Axis, PyTree

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


def _kind_of_work(agent: Agent, obs: PyTree) -> str:
    if any(is_large_image(x.shape[2:]) for x in jax.tree.leaves(obs)):
        return "images"
    return "recurrent" if agent.network.waits_for_the_carry else "feed-forward"


def _largest_divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`, at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(1, most))
