r"""A custom network: an encoder with residual blocks, and a core that remembers by fading averages.

Command:  jaxrl train ppo --config.network.encoder=residual_network:residual \
          --config.network.core=residual_network:fading
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks import Core


class Residual(nn.Module):
    """Two blocks, each added to its input."""

    size: int

    @nn.compact
    def __call__(self, obs):
        x = nn.Dense(self.size)(obs)
        for _ in range(2):
            x = x + nn.Dense(self.size)(nn.silu(nn.Dense(self.size)(nn.LayerNorm()(x))))
        return nn.silu(x)


class Fading(Core):
    """Keeps a running average of its inputs, with a learnt rate for each unit."""

    size: int
    waits_for_the_carry = False  # no matrix product of a step needs the step before

    def initial_carry(self, n):
        return {"average": jnp.zeros((n, self.size))}

    @nn.compact
    def __call__(self, x, carry, reset):
        """Over x [steps, environments, features], with reset [steps, environments]."""
        x = nn.Dense(self.size)(x)
        rate = nn.sigmoid(self.param("rate", nn.initializers.zeros, (self.size,)))

        def step(average, inputs):
            x, reset = inputs
            average = jnp.where(reset[:, None], 0.0, average)
            average = average + rate * (x - average)
            return average, average

        last, averages = jax.lax.scan(step, carry["average"], (x, reset))
        return nn.silu(jnp.concatenate([x, averages], axis=-1)), {"average": last}


def residual(network, space):
    return Residual(network.hidden_sizes[-1])


def fading(network):
    return Fading(network.core_size)
