r"""A custom core, checked: traces of the past that fade over ten to a thousand steps.

First:    python trace_core.py
Command:  jaxrl train ppo --config.network.core=trace_core:Traces
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.networks import Core


class Traces(Core):
    """trace_t = d trace_{t-1} + (1 - d) x_t, with a fixed d for each unit.

    The fields `size` and `dtype` are given by `network.core_size` and `network.compute_dtype`.
    """

    size: int
    dtype: jnp.dtype = jnp.float32
    waits_for_the_carry = False  # no matrix product of a step needs the step before

    def initial_carry(self, n):
        return {"trace": jnp.zeros((n, self.size), jnp.float32)}

    @nn.compact
    def __call__(self, x, carry, reset):
        """Over x [steps, environments, features], with reset [steps, environments]."""
        x = nn.Dense(self.size, dtype=self.dtype)(x).astype(jnp.float32)
        decay = 1 - 1 / jnp.geomspace(10.0, 1000.0, self.size)[None]

        def step(trace, inputs):
            x, reset = inputs
            trace = jnp.where(reset[:, None], 0.0, trace)  # selected: 0 * NaN is NaN
            trace = decay * trace + (1 - decay) * x
            return trace, trace

        last, traces = jax.lax.scan(step, carry["trace"], (x, reset))
        # Long traces are small: they average much.
        y = nn.LayerNorm(dtype=self.dtype)(traces)
        return jnp.concatenate([nn.tanh(x.astype(self.dtype)), y], axis=-1), {"trace": last}


if __name__ == "__main__":
    jaxrl.check_core(Traces)
    print("Traces is sound")
