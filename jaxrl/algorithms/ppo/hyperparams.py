"""PPO's numeric hyperparameters."""

from __future__ import annotations

import flax.struct

from jaxrl.types import Array


@flax.struct.dataclass
class PPOHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them.

    `target_kl` is read only if the configuration sets `ppo.target_kl`: otherwise no stop is compiled in.
    """

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip_range: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array
