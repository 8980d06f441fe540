"""A transformer over time, whose carry is what its last steps were made of."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.kernels.windowed_attention import (
    Biases,
    attend_sequence,
    attend_step,
    remember,
    sinusoids,
)
from jaxrl.networks.layers import LayerNorm, orthogonal, per_block_orthogonal, residual_stream, weights_of
from jaxrl.types import Array

# Of the update gates: at 2 a fresh layer passes 88% of its input on, and the policy begins without memory.
_GATE_BIAS = 2.0
_EXPANSION = 2  # units of the dense layers between the steps, for each of the core


class GatedTransformer(Core):
    """One layer of a GTrXL: attention to the last steps, then two dense layers, each behind a gate.

    Parisotto et al. 2020, "Stabilizing transformers for reinforcement learning": normalised before each part
    instead of after it, with gates of a GRU in the place of sums, and relative positions. A step attends to
    itself and to the `memory_length` steps before it, as far as they are of its episode. The carry holds the
    normalised inputs of those, and 1 for each that there is.
    """

    waits_for_the_carry: ClassVar[bool] = False
    has_residual: ClassVar[bool] = True
    size: int
    heads: int
    memory_length: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> dict[str, Array]:
        return {
            "memory": jnp.zeros((n, self.memory_length, self.size), jnp.float32),
            "valid": jnp.zeros((n, self.memory_length), jnp.float32),
        }

    @nn.compact
    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        x = residual_stream(self, x_LNF, self.size, self.dtype)
        normed = LayerNorm(name="attention_norm")(x)
        x = GRUGate(self.dtype, name="attention_gate")(x, self._attend(normed, carry, reset_LN))
        y = self._dense("hidden", LayerNorm(name="dense_norm")(x), _EXPANSION * self.size)
        x = GRUGate(self.dtype, name="dense_gate")(x, self._dense("dense", jax.nn.relu(y), self.size))
        memory, valid = remember(carry["memory"], carry["valid"], normed, reset_LN)
        return x.astype(self.dtype), {"memory": memory, "valid": valid}

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "heads": self.heads, "memory_length": self.memory_length}
        return {"type": "gtrxl", "weights": weights_of(self), **sizes}

    def _attend(self, x: Array, carry: dict[str, Array], reset: Array) -> Array:
        size = self.size
        heads = self.heads
        width = self.size // self.heads
        weight = self.param("attention", per_block_orthogonal(3), (size, 3 * size)).astype(self.dtype)
        positions = sinusoids(self.memory_length + 1, size).astype(self.dtype)
        positions = matmul(positions, self.param("positions", orthogonal(), (size, size)).astype(self.dtype))
        split = lambda x: x.reshape(*x.shape[:-1], heads, width).astype(self.dtype)  # noqa: E731
        zeros = nn.initializers.zeros
        biases = Biases(
            self.param("content_bias", zeros, (heads, width)),
            self.param("position_bias", zeros, (heads, width)),
        )
        if len(x) == 1:
            query, key, value = (split(w) for w in jnp.split(weight, 3, axis=-1))
            window = jnp.concatenate([carry["memory"], x[0][:, None]], axis=1)
            held = (carry["valid"] != 0) & ~reset[0][:, None]
            visible = jnp.concatenate([held, jnp.ones_like(held[:, :1])], axis=1)
            asked = matmul(x[0].astype(self.dtype), query.reshape(size, size))
            y = attend_step(split(asked), window, visible, key, value, split(positions), biases)[None]
        else:
            entries = jnp.concatenate([carry["memory"].swapaxes(0, 1), x])
            key, value = jnp.split(matmul(entries.astype(self.dtype), weight[:, size:]), 2, axis=-1)
            episode = jnp.cumsum(reset.astype(jnp.int32), axis=0)
            segment = jnp.concatenate([jnp.where(carry["valid"].T != 0, 0, -1), episode])
            asked = split(matmul(x.astype(self.dtype), weight[:, :size]))
            y = attend_sequence(asked, split(key), split(value), segment, split(positions), biases)
        return self._dense("attended", y.reshape(*y.shape[:2], size), size)

    def _dense(self, name: str, x: Array, size: int) -> Array:
        """A linear layer whose result stays float32."""
        weight = self.param(f"{name}_kernel", orthogonal(), (x.shape[-1], size))
        bias = self.param(f"{name}_bias", nn.initializers.zeros, (size,))
        return matmul(x.astype(self.dtype), weight.astype(self.dtype)) + bias[None, None]


class GRUGate(nn.Module):
    """(1 - z) x + z h, where h and z are those of a GRU with the state x and the input relu(y).

    z = sigmoid(y W_z + x U_z - bias) is nearly 0 at first.
    """

    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        size = x.shape[-1]
        inputs = self._product(jax.nn.relu(y), "input", 3)
        r, z = jnp.split(inputs[..., : 2 * size] + self._product(x, "state", 2), 2, axis=-1)
        bias = self.param("bias", nn.initializers.constant(_GATE_BIAS), (size,))
        z = jax.nn.sigmoid(z - bias[None, None])
        h = jnp.tanh(inputs[..., 2 * size :] + self._product(jax.nn.sigmoid(r) * x, "candidate", 1))
        return (1 - z) * x + z * h

    def _product(self, x: Array, name: str, blocks: int) -> Array:
        size = x.shape[-1]
        weight = self.param(name, per_block_orthogonal(blocks), (size, blocks * size))
        return matmul(x.astype(self.dtype), weight.astype(self.dtype))
