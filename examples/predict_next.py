"""An auxiliary loss with its own parameters: features and action predict the next observation.

Command:  jaxrl train ppo --config.ppo.auxiliary_loss=predict_next:prediction
"""

import jax
import jax.numpy as jnp

from jaxrl.algorithms import AuxiliaryLoss


def init(key, num_features, spec):
    shape = (spec.action_space.n, num_features, *spec.observation_space.shape)
    return {"kernel": 0.01 * jax.random.normal(key, shape)}


def error(params, features, out, batch):
    predicted = jnp.einsum("lnf,lnfo->lno", features, params["kernel"][batch.action])
    missed = jnp.square(predicted[:-1] - batch.obs[1:]).mean(axis=-1)
    missed = jnp.where(batch.reset[1:], 0.0, missed)  # another episode
    missed = jnp.concatenate([missed, jnp.zeros_like(missed[:1])])
    return 0.1 * missed, {"features/prediction_error": missed}


prediction = AuxiliaryLoss(error, metrics=("features/prediction_error",), init=init)
