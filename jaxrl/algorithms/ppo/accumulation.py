"""Into how many parts the gradient of a minibatch is divided, so that each fits a cache or memory."""

from __future__ import annotations

import jax

from envs.base import is_large_image
from jaxrl.config import Config
from jaxrl.networks import Policy
from jaxrl.types import Axis, PyTree

# Activations of so many time steps stay in a core's cache between the forward and the backward pass, and
# the products are still large enough (docs/performance.md). The steps of one time are the rows of a
# recurrent core's products, so that it needs more of them; a large image has a thousand rows of its own.
CPU_PART_STEPS = {"recurrent": 2048, "feed-forward": 512, "images": 64}


def parts(config: Config, policy: Policy, axis: Axis, obs: PyTree) -> tuple[int, int]:
    """How often the chunks in time and the groups of environments of a minibatch are divided.

    By `ppo.gradient_accumulation`, or on CPU so that each part has about `CPU_PART_STEPS` time steps.

    Args:
      config: says how large a minibatch is.
      policy: decides which kind of work it is.
      axis: this device; only its platform counts.
      obs: leaves [T, B, *O]; only shapes count.
    """
    if config.ppo.gradient_accumulation or axis.platform != "cpu":
        return 1, config.ppo.gradient_accumulation or 1
    groups = config.ppo.minibatch_envs(config.envs_per_device)
    most = groups * config.rollout_length // CPU_PART_STEPS[_kind_of_work(policy, obs)]
    group_parts = _largest_divisor(groups, most)
    return _largest_divisor(config.num_chunks, most // group_parts), group_parts


def _kind_of_work(policy: Policy, obs: PyTree) -> str:
    if any(is_large_image(x.shape[2:]) for x in jax.tree.leaves(obs)):
        return "images"
    return "recurrent" if policy.waits_for_the_carry else "feed-forward"


def _largest_divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`, at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(1, most))
