"""Gated recurrent cells: the elementwise equations of one step, and their derivatives.

The derivatives are written out to keep less for the backward pass. On a CPU, writing an array in the forward
pass and reading it in the backward pass costs as much as the arithmetic on it. JAX keeps a dozen arrays of an
LSTM step; two suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Carry, PyTree


@dataclass(frozen=True)
class Cell:
    """One step on arrays [N, gates * H] and carries of [N, H]; float32.

    Attributes:
      name: of the core that repeats it.
      gates: how many there are.
      state: names of the carry's arrays; "h" among them is the output.
      forward: (projected input, recurrent projection, carry before) -> (carry after, activations kept).
      backward: (activations kept, carry before, gradient of the carry after) -> gradients of the projected
        input, of the recurrent projection, and of the carry before, as far as it is used outside of the
        projection.
    """

    name: str
    gates: int
    state: tuple[str, ...]
    forward: Callable[[Array, Array, Carry], tuple[Carry, PyTree]]
    backward: Callable[[PyTree, Carry, Carry], tuple[Array, Array, Carry]]


@dataclass(frozen=True)
class Launch:
    """Settings of a kernel that holds the LSTM's loop over time: what its `plan` chose, products' dtype."""

    plan: Any
    dtype: Any
    interpret: bool


class LSTMSteps(NamedTuple):
    """Arrays for the gradient of an LSTM over time; c before each step, and tanh of its gates."""

    weight_HG: Array
    reset_LN: Array
    c_before_LNH: Array
    tanh_LNG: Array


def _lstm_forward(inputs: Array, recurrent: Array, before: Carry) -> tuple[Carry, tuple[Array, Array]]:
    # sigmoid(x) = tanh(x / 2) / 2 + 1/2: one tanh serves all gates and is all that is kept of them.
    size = inputs.shape[-1] // 4
    column = jax.lax.broadcasted_iota(jnp.int32, (1, 4 * size), 1)
    scale = jnp.where((column >= 2 * size) & (column < 3 * size), 1.0, 0.5)
    tanh = jnp.tanh(scale * (inputs + recurrent))
    i, f, g, o = lstm_gates(tanh)
    c = f * before["c"] + i * g
    tanh_c = jnp.tanh(c)
    return {"c": c, "h": o * tanh_c}, (tanh, tanh_c)


def lstm_gates(tanh: Array) -> tuple[Array, Array, Array, Array]:
    """Input, forget, cell and output gate, from the tanh that `LSTM.forward` keeps."""
    return gates_of_tanh(*jnp.split(tanh, 4, axis=-1))


def gates_of_tanh(i: Array, f: Array, g: Array, o: Array) -> tuple[Array, Array, Array, Array]:
    """`lstm_gates` of arrays that are separate already."""
    return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5


def lstm_tanh_c(gates: tuple[Array, Array, Array, Array], c_before: Array) -> Array:
    """tanh of the cell state after a step, where recomputing it costs less than storing it."""
    i, f, g, _ = gates
    return jnp.tanh(f * c_before + i * g)


def lstm_backward(
    kept: tuple[Array, Array], before: Carry, gradient: Carry, once: Callable[[Array], Array] = lambda x: x
) -> tuple[Array, Array, Carry]:
    """`LSTM.backward`; `once` marks a value that must not be recomputed for each gate."""
    tanh, tanh_c = kept
    gradients, dc = lstm_gate_gradients(lstm_gates(tanh), tanh_c, before["c"], gradient, once)
    joined = jnp.concatenate(gradients, axis=-1)
    return joined, joined, {"c": dc, "h": jnp.zeros_like(gradient["h"])}


def lstm_gate_gradients(
    gates: tuple[Array, Array, Array, Array],
    tanh_c: Array,
    c_before: Array,
    gradient: Carry,
    once: Callable[[Array], Array] = lambda x: x,
) -> tuple[tuple[Array, Array, Array, Array], Array]:
    """(gradients of the four pre-activations, gradient of c before the step)."""
    i, f, g, o = gates
    dh = gradient["h"]
    dc = once(gradient["c"] + dh * o * (1 - tanh_c * tanh_c))
    gradients = (
        dc * g * i * (1 - i),
        dc * c_before * f * (1 - f),
        dc * i * (1 - g * g),
        dh * tanh_c * o * (1 - o),
    )
    return gradients, dc * f


def _gru_forward(inputs: Array, recurrent: Array, before: Carry) -> tuple[Carry, tuple[Array, ...]]:
    xr, xz, xn = jnp.split(inputs, 3, axis=-1)
    hr, hz, hn = jnp.split(recurrent, 3, axis=-1)
    r = jax.nn.sigmoid(xr + hr)
    z = jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + r * hn)
    return {"h": (1 - z) * n + z * before["h"]}, (r, z, n, hn)


def _gru_backward(kept: tuple[Array, ...], before: Carry, gradient: Carry) -> tuple[Array, Array, Carry]:
    r, z, n, hn = kept
    dh = gradient["h"]
    dn = dh * (1 - z) * (1 - n * n)
    dr = dn * hn * r * (1 - r)
    dz = dh * (before["h"] - n) * z * (1 - z)
    dinputs = jnp.concatenate([dr, dz, dn], axis=-1)
    return dinputs, jnp.concatenate([dr, dz, dn * r], axis=-1), {"h": dh * z}


# exp(-80) is a normal number of float32, and nothing beside 1.
_FAR = 80.0


def _slstm_forward(inputs: Array, recurrent: Array, before: Carry) -> tuple[Carry, tuple[Array, ...]]:
    i, f, z, o = jnp.split(inputs + recurrent, 4, axis=-1)
    tail = jnp.exp(-jnp.abs(f))
    closing = jnp.where(f > 0, tail, 1.0) / (1 + tail)  # 1 - sigmoid(f)
    # c and n are divided by exp(m), the larger of what is kept of n and what is written, so that no
    # exponential overflows. n is at least 1 after a step; 0 says that nothing was written yet.
    kept = before["m"] + jnp.minimum(f, 0.0) - jnp.log(1 + tail)
    ahead = jnp.where(before["n"] == 0, _FAR, jnp.clip(i - kept, -_FAR, _FAR))
    # One of both is 1: the other one with a sign that says which is all that is stored.
    factor = jnp.where(ahead > 0, -1.0, 1.0) * jnp.exp(-jnp.abs(ahead))
    tanh = jnp.tanh(jnp.concatenate([z, 0.5 * o], axis=-1))
    keep, write, z, o = _slstm_gates(factor, tanh)
    c = keep * before["c"] + write * z
    n = keep * before["n"] + write
    m = jnp.where(ahead > 0, i, kept)
    return {"c": c, "h": o * c / n, "m": m, "n": n}, (factor, tanh, closing)


def _slstm_gates(factor: Array, tanh: Array) -> tuple[Array, Array, Array, Array]:
    """Factors of the kept and of the written values, the written values, and the output gate."""
    z, o = jnp.split(tanh, 2, axis=-1)
    return jnp.where(factor < 0, -factor, 1.0), jnp.where(factor < 0, 1.0, factor), z, 0.5 * o + 0.5


def _slstm_backward(kept: tuple[Array, ...], before: Carry, gradient: Carry) -> tuple[Array, Array, Carry]:
    factor, tanh, closing = kept
    keep, write, z, o = _slstm_gates(factor, tanh)
    n = keep * before["n"] + write
    read = (keep * before["c"] + write * z) / n
    dread = gradient["h"] * o / n
    dc = gradient["c"] + dread
    dn = gradient["n"] - dread * read
    # Of the logarithms of both factors; m is the larger logarithm, so the gradient of m goes to that one.
    dkeep = keep * (dc * before["c"] + dn * before["n"])
    dwrite = write * (dc * z + dn)
    di = jnp.where(factor < 0, gradient["m"] - dkeep, dwrite)
    df = jnp.where(factor < 0, dkeep, gradient["m"] - dwrite)
    gradients = (di, df * closing, dc * write * (1 - z * z), gradient["h"] * read * o * (1 - o))
    joined = jnp.concatenate(gradients, axis=-1)
    return joined, joined, {"c": dc * keep, "h": jnp.zeros_like(dc), "m": df, "n": dn * keep}


# Hochreiter and Schmidhuber 1997 with forget gates (Gers et al. 2000); gates i, f, g, o in this order.
_lstm_backward = partial(lstm_backward, once=jax.lax.optimization_barrier)
LSTM = Cell("lstm", 4, ("c", "h"), _lstm_forward, _lstm_backward)
# Cho et al. 2014, with the reset gate applied after the recurrent product, as cuDNN does; gates r, z, n.
GRU = Cell("gru", 3, ("h",), _gru_forward, _gru_backward)
# Beck et al. 2024, equations 8 to 17, with sigmoid forget gates; gates i, f, z, o.
SLSTM = Cell("slstm", 4, ("c", "h", "m", "n"), _slstm_forward, _slstm_backward)
