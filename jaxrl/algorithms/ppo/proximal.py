"""PPO on trajectories of an older policy: the proximal policy apart from the behaviour policy."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl.algorithms.accumulation import parts
from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.algorithms.batch import Batch
from jaxrl.algorithms.ppo import losses
from jaxrl.algorithms.sequences import Sequences
from jaxrl.config import Config
from jaxrl.types import Acting, Array, Axis


def proximal_batch(config: Config, agent: ActorCritic, axis: Axis, proximal: Acting, batch: Batch) -> Batch:
    """The batch for an update that starts from `proximal`, if an older policy collected it.

    The decoupled objective of Hilton et al. 2021, "Batch size-invariance for policy optimization":

        w min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)
        r = pi / pi_proximal,    w = pi_proximal / pi_behaviour

    The proximal policy is the one that the update starts from, so that clipping and `ppo.target_kl` limit how
    far the update goes, and not how old the data are.

    Args:
      batch: of this device; its rows `log_prob` and `value` are the behaviour policy's, `advantage` is A.

    Returns:
      The batch with the proximal policy's `log_prob` and `value`, and with w A as `advantage`.
    """
    log_prob_TB, value_TB = _evaluate(config, agent, axis, proximal, batch)
    weight_TB = losses.importance_weight(log_prob_TB, batch.rows["log_prob"])
    rows = {"log_prob": log_prob_TB, "value": value_TB, "advantage": batch.rows["advantage"] * weight_TB}
    if batch.valid is not None:
        rows = {name: jnp.where(batch.valid, x, 0.0) for name, x in rows.items()}
    return dataclasses.replace(batch, rows=batch.rows | rows)


def _evaluate(
    config: Config, agent: ActorCritic, axis: Axis, proximal: Acting, batch: Batch
) -> tuple[Array, Array]:
    """Log-probabilities and values, float32[T, B], from the stored carries as in an update.

    As many environments at a time as in a minibatch or a part of one: they fit where its gradient fits.
    """
    chunks = config.num_chunks
    length = config.sequence_length
    envs = config.rows_per_device
    minibatches = config.ppo.minibatch_envs(config.env.rows)
    divided = parts(
        config.ppo.gradient_accumulation,
        chunks=chunks,
        environments=envs // minibatches,
        length=length,
        agent=agent,
        axis=axis,
        obs=batch.obs,
    )
    groups = minibatches * divided[1]

    def evaluate(environment_G: Array) -> tuple[Array, Array]:
        sequences = Sequences(jnp.broadcast_to(environment_G[None], (chunks, *environment_G.shape)))
        part = batch.take(sequences, length)
        out = agent.apply(proximal, part.obs, part.carry, part.reset, part.action_mask)
        return out.distribution.log_prob(part.action), out.value

    def whole(x: Array) -> Array:
        by_group = x.reshape(groups, length, chunks, -1)
        return by_group.transpose(2, 1, 0, 3).reshape(config.rollout_length, -1)

    log_prob, value = jax.lax.map(evaluate, jnp.arange(envs).reshape(groups, -1))
    return whole(log_prob), whole(value)
