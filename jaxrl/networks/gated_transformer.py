"""A transformer over time, whose carry holds the inputs of its last steps."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.products import matmul, weight_gradient
from jaxrl.networks.kernels.window_memory import WindowEntries, ages, attend_step, in_order, remember
from jaxrl.networks.kernels.windowed_attention import Biases, attend_sequence, pad, sinusoids, windows
from jaxrl.networks.layers import (
    LayerNorm,
    orthogonal,
    per_block_orthogonal,
    product,
    residual_stream,
    weights_of,
)
from jaxrl.types import Array, Carry

# Of the update gates: at 2 a fresh layer passes 88% of its input on, and the policy begins without memory.
_GATE_BIAS = 2.0
# Steps of a sequence; more take more memory.
_AT_ONCE = 256
_EXPANSION = 2  # units of the dense layers between the steps, for each of the core


class GatedTransformer(Core):
    """One layer of a GTrXL: attention to the last steps, then two dense layers, each behind a gate.

    Parisotto et al. 2020, "Stabilizing transformers for reinforcement learning": normalised before each part
    instead of after it, with gates of a GRU in the place of sums, and relative positions. A step attends to
    itself and to the `memory_length` steps before it, as far as they are of its episode. The carry holds the
    normalised inputs of these steps and what is known of each (`window_memory`): no keys and values, which an
    update of the parameters would make stale.
    """

    waits_for_the_carry: ClassVar[bool] = False
    has_residual: ClassVar[bool] = True
    size: int
    heads: int
    memory_length: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        return {
            "memory": jnp.zeros((n, self.memory_length, self.size), jnp.float32),
            "valid": jnp.zeros((n, self.memory_length), jnp.float32),
        }

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        x = residual_stream(self, x_LNF, self.size, self.dtype)
        normed = LayerNorm(name="attention_norm")(x)
        if len(x) == 1:
            y = self._gated(x, self._attend_once(normed, carry, reset_LN))
        else:
            y = self._over_sequence(x, normed, carry, reset_LN)
        # A diverged step leaves zeros. Known only once it has attended, which lets a loop over steps write to
        # the memory in its place: nothing reads it afterwards.
        entry = jnp.where(jnp.isfinite(y), normed, 0.0)
        memory, valid = remember(carry["memory"], carry["valid"], entry, reset_LN)
        return y.astype(self.dtype), {"memory": memory, "valid": valid}

    def _over_sequence(self, x: Array, normed: Array, carry: Carry, reset: Array) -> Array:
        memory, held = in_order(carry["memory"], carry["valid"])
        # A diverged step is zeros to others, as in the memory: 0 * NaN would spoil the next episode.
        entries = jnp.concatenate([memory.swapaxes(0, 1), normed])
        entries = jnp.where(jnp.isfinite(entries), entries, 0.0)
        episode = jnp.cumsum(reset.astype(jnp.int32), axis=0)
        segment = jnp.concatenate([jnp.where(held.T, 0, -1), episode])
        length = len(x)
        part = self.memory_length * max(1, _AT_ONCE // self.memory_length)
        if length <= part:
            return self._gated(x, self._attend(entries, segment))
        # Part by part, so that all but what is kept for the gradient has the size of a part.
        count = -(-length // part)
        x, entries, segment = (pad(a, count * part - length) for a in (x, entries, segment))
        xs = [
            x.reshape(count, part, *x.shape[1:]),
            *(windows(a, count, self.memory_length) for a in (entries, segment)),
        ]

        def step(module: GatedTransformer, _: None, xs: list[Array]) -> tuple[None, Array]:
            x, entries, segment = xs
            return None, module._gated(x, module._attend(entries, segment, keep=False), keep=False)

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        _, y = scan(self, None, xs)
        return y.reshape(count * part, *y.shape[2:])[:length]

    def _gated(self, x: Array, attended: Array, keep: bool = True) -> Array:
        hidden = GatedTransformer._hidden
        x = GRUGate(self.dtype, name="attention_gate")(x, attended)
        y = (hidden if keep else nn.remat(hidden))(self, x)
        return GRUGate(self.dtype, name="dense_gate")(x, self._dense("dense", y, self.size))

    def _hidden(self, x: Array) -> Array:
        """The widest arrays of the layer, from one product: with long sequences they are computed twice."""
        y = self._dense("hidden", LayerNorm(name="dense_norm")(x), _EXPANSION * self.size)
        return jax.nn.relu(y).astype(self.dtype)

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "heads": self.heads, "memory_length": self.memory_length}
        return {"type": "gtrxl", "weights": weights_of(self), **sizes}

    def _attend_once(self, x: Array, carry: Carry, reset: Array) -> Array:
        size = self.size
        weight, positions, biases = self._of_attention()
        query, key, value = (self._heads(w) for w in jnp.split(weight, 3, axis=-1))
        held = (carry["valid"] != 0) & ~reset[0][:, None]
        memory = WindowEntries(carry["memory"], ages(carry["valid"]), held, reset[0])
        asked = self._heads(matmul(x[0].astype(self.dtype), query.reshape(size, size)))
        y = attend_step(asked, memory, x[0], key, value, positions, biases)
        return self._dense("attended", y.reshape(1, -1, size), size)

    def _attend(self, entries: Array, segment: Array, keep: bool = True) -> Array:
        size = self.size
        weight, positions, biases = self._of_attention()
        key, value = jnp.split(matmul(entries.astype(self.dtype), weight[:, size:]), 2, axis=-1)
        asked = matmul(entries[self.memory_length :].astype(self.dtype), weight[:, :size])
        asked, key, value = (self._heads(a) for a in (asked, key, value))
        y = attend_sequence(asked, key, value, segment, positions, biases, keep)
        return self._dense("attended", y, size)

    def _of_attention(self) -> tuple[Array, Array, Biases]:
        """Weights of queries, keys and values; r of each distance, by head; the biases."""
        size = self.size
        weight = self.param("attention", per_block_orthogonal(3), (size, 3 * size)).astype(self.dtype)
        places = sinusoids(self.memory_length + 1, size)
        positions = product(self, "positions", places, orthogonal(), size, self.dtype)
        of_heads = (self.heads, size // self.heads)
        names = ("content_bias", "position_bias")
        biases = Biases(*(self.param(name, nn.initializers.zeros, of_heads) for name in names))
        return weight, self._heads(positions), biases

    def _heads(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.heads, self.size // self.heads).astype(self.dtype)

    def _dense(self, name: str, x: Array, size: int) -> Array:
        """A linear layer whose result stays float32."""
        y = product(self, f"{name}_kernel", x, orthogonal(), size, self.dtype)
        return y + self.param(f"{name}_bias", nn.initializers.zeros, (size,))[None, None]


class GRUGate(nn.Module):
    """`gru_gate` with its weights; z is nearly 0 at first."""

    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        size = x.shape[-1]
        # In the order of the fields: the keys of initial weights are counted.
        weights = GateWeights(
            input=self._weight("input", size, 3),
            state=self._weight("state", size, 2),
            bias=self.param("bias", nn.initializers.constant(_GATE_BIAS), (size,)),
            candidate=self._weight("candidate", size, 1),
        )
        return gru_gate(x, y, weights)

    def _weight(self, name: str, size: int, blocks: int) -> Array:
        return self.param(name, per_block_orthogonal(blocks), (size, blocks * size)).astype(self.dtype)


class GateWeights(NamedTuple):
    """Weights in the dtype of the products: of relu(y) for r, z and h, of x for r and z, of r x for h.

    The bias is float32[F].
    """

    input: Array
    state: Array
    bias: Array
    candidate: Array


class _Saved(NamedTuple):
    """Arguments and activations of the gate; float32[..., F], r and z together."""

    x: Array
    y: Array
    rz: Array
    h: Array
    weights: GateWeights


@jax.custom_vjp
def gru_gate(x: Array, y: Array, weights: GateWeights) -> Array:
    """float32[L, N, F], (1 - z) x + z h, with h and z of a GRU with the state x and the input relu(y).

    r = sigmoid(relu(y) W_r + x U_r), z = sigmoid(relu(y) W_z + x U_z - bias) and h = tanh(relu(y) W_h + (r x)
    U_h) (Parisotto et al. 2020, section 3.2). The hand-written gradient keeps four arrays of the size of x,
    the stream, where autodiff keeps seven.
    """
    return _forward(x, y, weights)[0]


def _forward(x: Array, y: Array, weights: GateWeights) -> tuple[Array, _Saved]:
    dtype = weights.input.dtype
    size = x.shape[-1]
    inputs = matmul(jax.nn.relu(y).astype(dtype), weights.input)
    bias = jnp.concatenate([jnp.zeros_like(weights.bias), weights.bias])
    rz = inputs[..., : 2 * size] + matmul(x.astype(dtype), weights.state)
    rz = jax.nn.sigmoid(rz - bias[None, None])
    r, z = jnp.split(rz, 2, axis=-1)
    h = jnp.tanh(inputs[..., 2 * size :] + matmul((r * x).astype(dtype), weights.candidate))
    return (1 - z) * x + z * h, _Saved(x, y, rz, h, weights)


def _backward(saved: _Saved, gradient: Array) -> tuple[Array, Array, GateWeights]:
    x, y, rz, h, weights = saved
    dtype = weights.input.dtype
    r, z = jnp.split(rz, 2, axis=-1)
    dh = gradient * z * (1 - h * h)
    dz = gradient * (h - x) * z * (1 - z)
    drx = matmul(dh.astype(dtype), weights.candidate.T)
    dr = drx * x * r * (1 - r)
    before = jnp.concatenate([dr, dz, dh], axis=-1).astype(dtype)  # of r, z and h
    drz = before[..., : 2 * x.shape[-1]]
    dx = gradient * (1 - z) + drx * r + matmul(drz, weights.state.T)
    dy = jnp.where(y > 0, matmul(before, weights.input.T), 0.0)
    dweights = GateWeights(
        input=weight_gradient(jax.nn.relu(y).astype(dtype), before).astype(dtype),
        state=weight_gradient(x.astype(dtype), drz).astype(dtype),
        bias=-dz.sum(axis=tuple(range(dz.ndim - 1))),
        candidate=weight_gradient((r * x).astype(dtype), dh.astype(dtype)).astype(dtype),
    )
    return dx, dy, dweights


gru_gate.defvjp(_forward, _backward)
