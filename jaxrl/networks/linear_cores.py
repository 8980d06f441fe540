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
from jaxrl.networks.layers import (
    LayerNorm,
    activation,
    layer_norm,
    orthogonal,
    per_block_orthogonal,
    product,
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
# Contexts of FFM turn once in 1 to 1,024 steps at first, traces forget half in 1 to 154 steps: a hundredth
# of the last is left after 1,024. The fastest decay is the one that the authors' sums in float64 allow.
_PERIOD = (1.0, 1024.0)
_DECAY = (0.673, math.log(100) / 1024)


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
        gates_LNG = product(self, "input", x_LNF, self._weight_init, 2 * self.size, self.dtype)
        bias = self.param("bias", self._bias_init, (2 * self.size,))
        z, n = jnp.split(gates_LNG + bias[None, None], 2, axis=-1)
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
        size = self.size
        nu, theta, gamma = self.param("eigenvalues", _eigenvalues, (3, size))
        modulus = jnp.exp(-jnp.exp(nu))
        a = (modulus * jnp.cos(jnp.exp(theta)), modulus * jnp.sin(jnp.exp(theta)))
        inputs = product(self, "input", x_LNF, per_block_orthogonal(2), 2 * size, self.dtype)
        b = tuple(jnp.exp(gamma)[None, None] * part for part in jnp.split(inputs, 2, axis=-1))
        before = (carry["real"], carry["imaginary"])
        real, imaginary = linear_recurrence(tuple(part[None, None] for part in a), b, before, reset_LN)
        state = jnp.concatenate([real, imaginary], axis=-1)
        y = product(self, "output", state, orthogonal(), size, self.dtype)
        y = y + product(self, "skip", x_LNF, orthogonal(), size, self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (size,))
        after = {"real": real[-1], "imaginary": imaginary[-1]}
        return activation(self.activation)(y + bias[None, None]).astype(self.dtype), after

    def describe(self) -> dict[str, Any]:
        named = {"size": self.size, "activation": self.activation}
        return {"type": "lru", "weights": weights_of(self), **named}


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
        normal = nn.initializers.normal
        inputs = product(self, "input", u, normal(math.sqrt(0.5 / size)), 2 * states, self.dtype)
        driven = tuple(jnp.split(inputs, 2, axis=-1))
        b = times(_add_ranks(held), driven)
        real, imaginary = linear_recurrence(_add_ranks(a), b, (carry["real"], carry["imaginary"]), reset_LN)

        # Twice the real part of a complex product, the factor within the weights.
        state = jnp.concatenate([real, imaginary], axis=-1)
        y = product(self, "output", state, normal(1 / math.sqrt(states)), size, self.dtype)
        y = jax.nn.gelu(y + self.param("skip", normal(1.0), (size,))[None, None] * u)
        gate = product(self, "gate", y, orthogonal(), size, self.dtype)
        gate = gate + self.param("bias", nn.initializers.zeros, (size,))[None, None]
        after = {"real": real[-1], "imaginary": imaginary[-1]}
        return (x + y * jax.nn.sigmoid(gate)).astype(self.dtype), after

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "state_size": self.state_size}
        return {"type": "s5", "weights": weights_of(self), **sizes}


def zero_order_hold(spectrum: Array) -> tuple[Number, Number]:
    """exp(lambda dt) and (exp(lambda dt) - 1) / lambda, as real and imaginary parts.

    `spectrum` is float32[3, P]: log(-Re lambda), Im lambda and log dt.
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


class FFM(Core):
    """S_t = exp(-|alpha| + i omega) S_{t-1} + u_t 1^T, a row for each trace, a column for each context.

    Morad et al. 2023, "Reinforcement learning with fast and forgetful memory": the input is gated,
    u = l_1(x) sigmoid(l_2(x)); y = g LN(l_3(Re S, Im S)) + (1 - g) l_5(x) with g = sigmoid(l_4(x)). The norm
    has no parameters.

    Attributes:
      state_size: complex numbers of the state, traces times contexts.
      heads: contexts. With 128 numbers and 4 contexts the state has the size of the paper's.
    """

    waits_for_the_carry: ClassVar[bool] = False
    size: int
    state_size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        return {part: jnp.zeros((n, self.state_size), jnp.float32) for part in ("imaginary", "real")}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        size = self.size
        traces = self.state_size // self.heads
        faded = jnp.exp(-jnp.abs(self.param("decay", lambda _: jnp.linspace(*_DECAY, traces))))
        angle = self.param("angle", lambda _: 2 * math.pi / jnp.linspace(*_PERIOD, self.heads))
        a = tuple(jnp.outer(faded, turn).reshape(1, 1, -1) for turn in (jnp.cos(angle), jnp.sin(angle)))

        # l_1, l_2, l_4 and l_5 in one product.
        widths = (traces, traces, size, size)
        projected = self._linear("input", x_LNF, *widths)
        written, write, gate, skip = jnp.split(projected, [traces, 2 * traces, 2 * traces + size], axis=-1)
        u = jnp.repeat(written * jax.nn.sigmoid(write), self.heads, axis=-1)
        before = (carry["real"], carry["imaginary"])
        real, imaginary = linear_recurrence(a, (u, jnp.zeros_like(u)), before, reset_LN)

        z = self._linear("output", jnp.concatenate([real, imaginary], axis=-1), size)
        z = layer_norm(z, jnp.ones(size), jnp.zeros(size), 1)
        y = skip + jax.nn.sigmoid(gate) * (z - skip)
        return y.astype(self.dtype), {"real": real[-1], "imaginary": imaginary[-1]}

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "state_size": self.state_size, "heads": self.heads}
        return {"type": "ffm", "weights": weights_of(self), **sizes}

    def _linear(self, name: str, x: Array, *widths: int) -> Array:
        """Layers of these widths beside each other, each with orthogonal weights."""

        def init(key: Array, _: tuple[int, ...]) -> Array:
            keys = jax.random.split(key, len(widths))
            blocks = [orthogonal()(k, (x.shape[-1], w)) for k, w in zip(keys, widths, strict=True)]
            return jnp.concatenate(blocks, axis=-1)

        y = product(self, name, x, init, sum(widths), self.dtype)
        return y + self.param(f"{name}_bias", nn.initializers.zeros, (sum(widths),))[None, None]
