"""Linear recurrences: gates see the input alone, so that no matrix product waits for the previous step."""

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
from jaxrl.networks.layers import (
    LayerNorm,
    activation,
    orthogonal,
    per_block_orthogonal,
    residual_stream,
    weights_of,
)
from jaxrl.types import Array, Carry

# Initial memory of the first and the last unit, in steps (Tallec and Ollivier 2018).
_MEMORY = (2.0, 128.0)
# Gain of a minGRU's gate weights: gates see the input alone, and at gain 1 hardly react to it.
_GATE_GAIN = 4.0
# Smallest and largest first time step of a unit, in steps of the environment (Smith et al. 2023, table 11).
_TIME_STEP = (1e-3, 1e-1)


class MinGRU(Core):
    """h_t = (1 - z_t) h_{t-1} + z_t n_t, z_t = sigmoid(x_t W_z + b_z), n_t = x_t W_n + b_n.

    Feng et al. 2024, "Were RNNs all we needed?"
    """

    waits_for_the_carry: ClassVar[bool] = False
    size: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        return {"h": jnp.zeros((n, self.size), jnp.float32)}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        shape = (x_LNF.shape[-1], 2 * self.size)
        weight = self.param("input", self._weight_init, shape)
        bias = self.param("bias", self._bias_init, shape[1:])
        gates_LNG = matmul(x_LNF.astype(self.dtype), weight.astype(self.dtype)) + bias[None, None]
        z, n = jnp.split(gates_LNG, 2, axis=-1)
        z = jax.nn.sigmoid(z)
        (h_LNH,) = linear_recurrence((1 - z,), (z * n,), (carry["h"],), reset_LN)
        return h_LNH.astype(self.dtype), {"h": h_LNH[-1]}

    def describe(self) -> dict[str, Any]:
        return {"type": "mingru", "weights": weights_of(self), "size": self.size}

    def _bias_init(self, key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        return jnp.zeros(shape, dtype).at[: self.size].set(-jnp.log(_memories(self.size) - 1))

    def _weight_init(self, key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        # A unit that averages over m steps shrinks noise by sqrt(2m - 1); larger candidates make up for that.
        gains = jnp.concatenate([jnp.full(self.size, _GATE_GAIN), jnp.sqrt(2 * _memories(self.size) - 1)])
        return per_block_orthogonal(2)(key, shape, dtype) * gains.astype(dtype)[None]


class LRU(Core):
    """h_t = lambda h_{t-1} + gamma x_t B in complex numbers; y_t = f(Re(h_t C) + x_t D + bias).

    lambda = exp(-exp(nu) + i exp(theta)) is inside the unit circle for all parameters. f replaces the MLP
    of Orvieto et al. 2023, "Resurrecting recurrent neural networks for long sequences".
    """

    waits_for_the_carry: ClassVar[bool] = False
    size: int
    activation: str
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        return {part: jnp.zeros((n, self.size), jnp.float32) for part in ("imaginary", "real")}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        features = x_LNF.shape[-1]
        size = self.size
        nu, theta, gamma = self.param("eigenvalues", _eigenvalues, (3, size))
        modulus = jnp.exp(-jnp.exp(nu))
        a = (modulus * jnp.cos(jnp.exp(theta)), modulus * jnp.sin(jnp.exp(theta)))
        x = x_LNF.astype(self.dtype)
        inputs = self._product(x, "input", per_block_orthogonal(2), (features, 2 * size))
        b = tuple(jnp.exp(gamma)[None, None] * part for part in jnp.split(inputs, 2, axis=-1))
        before = (carry["real"], carry["imaginary"])
        real, imaginary = linear_recurrence(tuple(part[None, None] for part in a), b, before, reset_LN)
        state = jnp.concatenate([real, imaginary], axis=-1).astype(self.dtype)
        y = self._product(state, "output", orthogonal(), (2 * size, size))
        y = y + self._product(x, "skip", orthogonal(), (features, size))
        bias = self.param("bias", nn.initializers.zeros, (size,))
        after = {"real": real[-1], "imaginary": imaginary[-1]}
        return activation(self.activation)(y + bias[None, None]).astype(self.dtype), after

    def describe(self) -> dict[str, Any]:
        named = {"size": self.size, "activation": self.activation}
        return {"type": "lru", "weights": weights_of(self), **named}

    def _product(
        self, x: Array, name: str, init: nn.initializers.Initializer, shape: tuple[int, int]
    ) -> Array:
        return matmul(x, self.param(name, init, shape).astype(self.dtype))


def _memories(size: int) -> Array:
    """float32[size]: initial memory of each unit in steps, evenly spaced in the logarithm."""
    return jnp.geomspace(*_MEMORY, size)


def _eigenvalues(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """log nu, log theta and log gamma: any angle, and gamma = sqrt(1 - |lambda|^2).

    Every unit then has the variance of its input, however long its memory.
    """
    memory = _memories(shape[-1])
    angle = jax.random.uniform(key, memory.shape, dtype, 1e-3, 2 * math.pi)
    gamma = jnp.sqrt(-jnp.expm1(-2 / memory))
    return jnp.stack([-jnp.log(memory), jnp.log(angle), jnp.log(gamma)]).astype(dtype)


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

    def initial_carry(self, n: int) -> Carry:
        return {part: jnp.zeros((n, self.state_size), jnp.float32) for part in ("imaginary", "real")}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        size, states = self.size, self.state_size
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
