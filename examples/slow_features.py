"""An auxiliary loss without parameters: features of successive steps are to be close.

Command:  jaxrl train ppo --config.ppo.auxiliary_loss=slow_features:slowness
"""

import jax.numpy as jnp

from jaxrl.algorithms import AuxiliaryLoss


def change(params, features, out, batch):
    moved = jnp.square(features[1:] - features[:-1]).mean(axis=-1)
    moved = jnp.where(batch.reset[1:], 0.0, moved)  # another episode
    moved = jnp.concatenate([jnp.zeros_like(moved[:1]), moved])
    return 0.01 * moved, {"features/change": moved}


slowness = AuxiliaryLoss(change, metrics=("features/change",))
