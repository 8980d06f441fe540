"""A state space with a diagonal matrix: many damped oscillations, driven by the input and read out."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.linear_recurrence import Number, linear_recurrence, times
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.layers import LayerNorm, orthogonal, residual_stream, weights_of
from jaxrl.types import Array

# Smallest and largest first time step of a unit, in steps of the environment (Smith et al. 2023, table 11).
_TIME_STEP = (1e-3, 1e-1)


class S5(Core):
    """h' = lambda h + B u over a time step of each unit's own, y = 2 Re(C h) + d u, then a gate.

    Smith et al. 2023, "Simplified state space layers for sequence modeling", with the resets of Lu et al.
    2023, "Structured state space models for in-context reinforcement learning". lambda is diagonal, complex,
    and begins as the spectrum of HiPPO-N; u is held over the time step (zero-order hold). The result is added
    to the input; u is the normalised input.
    """

    waits_for_the_carry: ClassVar[bool] = False
    has_residual: ClassVar[bool] = True
    size: int
    state_size: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> dict[str, Array]:
        return {part: jnp.zeros((n, self.state_size), jnp.float32) for part in ("imaginary", "real")}

    @nn.compact
    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        size = self.size
        states = self.state_size
        x = residual_stream(self, x_LNF, size, self.dtype)
        u = LayerNorm(name="norm")(x)
        a, held = zero_order_hold(self.param("spectrum", _spectrum, (3, states)))
        weight = self.param("input", nn.initializers.normal(math.sqrt(0.5 / size)), (size, 2 * states))
        driven = jnp.split(matmul(u.astype(self.dtype), weight.astype(self.dtype)), 2, axis=-1)
        b = times(_add_ranks(held), (driven[0], driven[1]))
        real, imaginary = linear_recurrence(_add_ranks(a), b, (carry["real"], carry["imaginary"]), reset_LN)

        # Twice the real part of a complex product, the factor within the weights.
        state = jnp.concatenate([real, imaginary], axis=-1).astype(self.dtype)
        weight = self.param("output", nn.initializers.normal(1 / math.sqrt(states)), (2 * states, size))
        y = matmul(state, weight.astype(self.dtype))
        y = jax.nn.gelu(y + self.param("skip", nn.initializers.normal(1.0), (size,))[None, None] * u)
        gate = matmul(y.astype(self.dtype), self.param("gate", orthogonal(), (size, size)).astype(self.dtype))
        gate = gate + self.param("bias", nn.initializers.zeros, (size,))[None, None]
        after = {"real": real[-1], "imaginary": imaginary[-1]}
        return (x + y * jax.nn.sigmoid(gate)).astype(self.dtype), after

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "state_size": self.state_size}
        return {"type": "s5", "weights": weights_of(self), **sizes}


def zero_order_hold(spectrum: Array) -> tuple[Number, Number]:
    """exp(lambda dt) and (exp(lambda dt) - 1) / lambda, as real and imaginary parts.

    Args:
      spectrum: float32[3, P], log(-Re lambda), Im lambda and log dt.
    """
    real = -jnp.exp(spectrum[0])
    imaginary = spectrum[1]
    step = jnp.exp(spectrum[2])
    modulus = jnp.exp(real * step)
    angle = imaginary * step
    a = (modulus * jnp.cos(angle), modulus * jnp.sin(angle))
    # exp(z) - 1 = expm1(x) cos(y) - 2 sin(y / 2)^2 + i exp(x) sin(y), which is exact for small z too.
    less_one = (jnp.expm1(real * step) * jnp.cos(angle) - 2 * jnp.square(jnp.sin(angle / 2)), a[1])
    square = jnp.square(real) + jnp.square(imaginary)
    return a, times(less_one, (real / square, -imaginary / square))


def _add_ranks(x: Number) -> Number:
    return tuple(part[None, None] for part in x)


def _spectrum(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    states = shape[-1]
    low, high = (math.log(x) for x in _TIME_STEP)
    steps = jax.random.uniform(key, (states,), dtype, low, high)
    return jnp.stack([jnp.full(states, math.log(0.5), dtype), jnp.asarray(hippo_n(states), dtype), steps])


@functools.cache
def hippo_n(states: int) -> np.ndarray:
    """Positive imaginary parts of the eigenvalues of HiPPO-N of size 2 `states`; every real part is -1/2.

    HiPPO-N is the normal part of the matrix of HiPPO-LegS (Gu et al. 2022, "On the parameterization and
    initialization of diagonal state space models"); its eigenvalues are conjugate pairs.
    """
    root = np.sqrt(2 * np.arange(2 * states) + 1.0)
    # -1/2 I plus an antisymmetric matrix, whose eigenvalues are i times a Hermitian one's.
    antisymmetric = np.triu(np.outer(root, root), 1) / 2
    found = np.linalg.eigvalsh(1j * (antisymmetric.T - antisymmetric))
    return found[states:]
