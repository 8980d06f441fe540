"""PPO on trajectories of an older policy: the proximal policy apart from the behaviour policy."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl.algorithms.ppo import losses
from jaxrl.algorithms.ppo.accumulation import parts
from jaxrl.algorithms.ppo.batch import Batch
from jaxrl.config import Config
from jaxrl.networks import Policy
from jaxrl.types import Array, Axis, PyTree


def decoupled(config: Config, policy: Policy, axis: Axis, params: PyTree, batch: Batch) -> Batch:
    """The batch for an update that starts from `params`, where an older policy collected it.

    The decoupled objective of Hilton et al. 2021, "Batch size-invariance for policy optimization":

        w min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)
        r = pi / pi_proximal,    w = pi_proximal / pi_behaviour

    The proximal policy is the one that the update starts from, so that clipping and `ppo.target_kl` limit how
    far the update goes, and not how old the data are.

    Args:
      config: the resolved configuration.
      policy: what learns.
      axis: this device.
      params: those of the proximal policy.
      batch: of this device; `log_prob` and `value` are the behaviour policy's, `advantage` is A.

    Returns:
      The batch with the proximal policy's `log_prob` and `value`, and with w A as `advantage`.
    """
    log_prob_TB, value_TB = _evaluate(config, policy, axis, params, batch)
    weighted_TB = batch.advantage * losses.importance_weight(log_prob_TB, batch.log_prob)
    fields = {"log_prob": log_prob_TB, "value": value_TB, "advantage": weighted_TB}
    if batch.valid is not None:
        fields = {name: jnp.where(batch.valid, x, 0.0) for name, x in fields.items()}
    return dataclasses.replace(batch, **fields)


def _evaluate(
    config: Config, policy: Policy, axis: Axis, params: PyTree, batch: Batch
) -> tuple[Array, Array]:
    """Log-probabilities and values, float32[T, B], from the stored carries as in an update.

    As many environments at a time as in a minibatch or a part of one: they fit where its gradient fits.
    """
    groups = config.ppo.num_minibatches * parts(config, policy, axis, batch.obs)[1]
    chunks, length = config.num_chunks, config.sequence_length
    environment_PG = jnp.arange(config.envs_per_device).reshape(groups, -1)

    def evaluate(environment_G: Array) -> tuple[Array, Array]:
        environment_CG = jnp.broadcast_to(environment_G[None], (chunks, *environment_G.shape))
        part = batch.take(environment_CG, length)
        out = policy.apply(params, part.obs, part.carry, part.reset, part.action_mask)
        return out.distribution.log_prob(part.action), out.value

    def whole(x: Array) -> Array:
        by_group = x.reshape(groups, length, chunks, -1)
        return by_group.transpose(2, 1, 0, 3).reshape(config.rollout_length, -1)

    log_prob, value = jax.lax.map(evaluate, environment_PG)
    return whole(log_prob), whole(value)
