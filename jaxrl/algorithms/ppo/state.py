"""What PPO remembers from one trajectory to the next."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import PPOConfig
from jaxrl.types import Array, LearnerState, PyTree, Sharded, Transferable


@flax.struct.dataclass
class PPOHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them.

    `target_kl` is read only where the configuration sets `ppo.target_kl`: otherwise no stop is compiled in.
    """

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip_range: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array

    @classmethod
    def of(cls, ppo: PPOConfig) -> PPOHyperparams:
        """The values of a configuration."""
        values = {field.name: getattr(ppo, field.name) for field in dataclasses.fields(cls)}
        if values["target_kl"] is None:
            values["target_kl"] = jnp.inf
        return cls(**jax.tree.map(jnp.float32, values))


@flax.struct.dataclass
class PPOState(LearnerState):
    """PPO's learner state.

    Attributes:
      hyperparams: `PPOHyperparams`.
      opt_state: optax state over the flattened parameter vector.
      reward_stats: running moments of the discounted return, or None.
      discounted_return: float32[B], accumulator for reward scaling.
    """

    opt_state: PyTree
    reward_stats: Annotated[PyTree, Transferable()]
    discounted_return: Annotated[Array, Sharded(0)]
