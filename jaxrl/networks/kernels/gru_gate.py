"""The gate of a GRU between a residual stream and a layer on it, with a hand-written gradient.

It keeps four arrays of the size of the stream, where autodiff keeps seven.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.networks.kernels.products import matmul, weight_gradient
from jaxrl.types import Array


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

    r = sigmoid(relu(y) W_r + x U_r), z = sigmoid(relu(y) W_z + x U_z - bias) and
    h = tanh(relu(y) W_h + (r x) U_h) (Parisotto et al. 2020, section 3.2).

    Args:
      x: float32[L, N, F], the stream.
      y: float32[L, N, F], what a layer adds.
      weights: see there.
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
