"""One step of each core with numpy alone; exported beside numpy_policy.py, which uses it.

A core takes its weights by name, its input [B, F], its carry, zeros where an episode begins, and returns its
output [B, H] and the carry after the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Weights = Callable[[str], Array]
Carry = dict[str, Array]
# Of a core in policy.json: its type, the name of its weights and its sizes.
Description = dict[str, Any]

# Of the norms of gated_delta.
EPSILON = np.float32(1e-2)


@dataclasses.dataclass(frozen=True)
class NumpyCore:
    """A type of core.

    Attributes:
      step: the function of its weights by name, input, carry and description.
      carry: the shapes of the arrays of its carry, without the batch, from its description.
    """

    step: Callable[[Weights, Array, Carry, Description], tuple[Array, Carry]]
    carry: Callable[[Description], dict[str, tuple[int, ...]]]


def gelu(x: Array) -> Array:
    return (
        np.float32(0.5)
        * x
        * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))
    )


def sigmoid(x: Array) -> Array:
    return np.float32(0.5) * np.tanh(np.float32(0.5) * x) + np.float32(0.5)


def _lstm(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    gates = x @ weights("input") + weights("bias") + carry["h"] @ weights("recurrent")
    i, f, g, o = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * carry["c"] + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, {"c": c, "h": h}


def _gru(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    xr, xz, xn = np.split(x @ weights("input") + weights("bias"), 3, axis=-1)
    hr, hz, hn = np.split(carry["h"] @ weights("recurrent"), 3, axis=-1)
    r = sigmoid(xr + hr)
    z = sigmoid(xz + hz)
    h = (1 - z) * np.tanh(xn + r * hn) + z * carry["h"]
    return h, {"h": h}


def _mingru(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    z, n = np.split(x @ weights("input") + weights("bias"), 2, axis=-1)
    z = sigmoid(z)
    h = (1 - z) * carry["h"] + z * n
    return h, {"h": h}


def _lru(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    nu, theta, gamma = np.exp(weights("eigenvalues"))
    modulus = np.exp(-nu)
    before = carry["real"] + 1j * carry["imaginary"]
    real, imaginary = np.split(x @ weights("input"), 2, axis=-1)
    h = modulus * np.exp(1j * theta) * before + gamma * (real + 1j * imaginary)
    after = {"real": h.real.astype(np.float32), "imaginary": h.imag.astype(np.float32)}
    state = np.concatenate([after["real"], after["imaginary"]], axis=-1)
    return state @ weights("output") + x @ weights("skip") + weights("bias"), after


def _s5(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    a, held = zero_order_hold(weights("spectrum"))
    u = _layer_norm(weights, "norm", x)
    real, imaginary = np.split(u @ weights("input"), 2, axis=-1)
    h = a * (carry["real"] + 1j * carry["imaginary"]) + held * (real + 1j * imaginary)
    after = {"real": h.real.astype(np.float32), "imaginary": h.imag.astype(np.float32)}
    y = np.concatenate([after["real"], after["imaginary"]], axis=-1) @ weights("output")
    y = gelu(y + weights("skip") * u)
    return x + y * sigmoid(y @ weights("gate") + weights("bias")), after


def zero_order_hold(spectrum: Array) -> tuple[Array, Array]:
    """exp(lambda dt) and (exp(lambda dt) - 1) / lambda of the rows log(-Re lambda), Im lambda and log dt."""
    real, imaginary, step = spectrum.astype(np.float64)
    eigenvalue = -np.exp(real) + 1j * imaginary
    product = eigenvalue * np.exp(step)
    return np.exp(product).astype(np.complex64), (np.expm1(product) / eigenvalue).astype(np.complex64)


def _gated_delta(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    u = _layer_norm(weights, "norm", x)
    heads = core["heads"]
    *parts, gate = np.split(u @ weights("input"), 4, axis=-1)
    query, key, value = (silu(part).reshape(len(x), heads, -1) for part in parts)
    query, key = (
        part / np.sqrt(np.square(part).sum(axis=-1, keepdims=True) + EPSILON) for part in (query, key)
    )
    decay, strength = np.split(u @ weights("rates") + weights("bias"), 2, axis=-1)
    state = carry["state"] * (1 - sigmoid(decay))[..., None, None]  # exp(-softplus(x)) = 1 - sigmoid(x)
    error = sigmoid(strength)[..., None] * (value - np.einsum("nhvk,nhk->nhv", state, key))
    state = state + error[..., None] * key[..., None, :]
    y = np.einsum("nhvk,nhk->nhv", state, query)
    y = y / np.sqrt(np.square(y).mean(axis=-1, keepdims=True) + EPSILON)
    y = y.reshape(len(x), -1) * weights("scale") * silu(gate)
    return x + y @ weights("output"), {"state": state}


def _gtrxl(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    normed = _layer_norm(weights, "attention_norm", x)
    # From the oldest to the newest; the newest is marked with 2, or else in the last place.
    marked = carry["valid"].max(axis=1) >= 2
    newest = np.where(marked, carry["valid"].argmax(axis=1), core["memory_length"] - 1)
    order = (newest[:, None] + 1 + np.arange(core["memory_length"])) % core["memory_length"]
    rows = np.arange(len(x))[:, None]
    window = np.concatenate([carry["memory"][rows, order], normed[:, None]], axis=1)
    valid = np.concatenate([carry["valid"][rows, order], np.ones_like(carry["valid"][:, :1])], axis=1)
    heads = core["heads"]
    size = core["size"]
    split = lambda x: x.reshape(*x.shape[:-1], heads, size // heads)  # noqa: E731
    query, key, value = np.split(weights("attention"), 3, axis=-1)
    asked = split(normed @ query)
    # The last entry of the window has distance 0.
    positions = split(sinusoids(core["memory_length"] + 1, size)[::-1] @ weights("positions"))
    scores = np.einsum("nhk,nwhk->nhw", asked + weights("content_bias"), split(window @ key))
    scores = scores + np.einsum("nhk,whk->nhw", asked + weights("position_bias"), positions)
    scores = np.where(valid[:, None] != 0, scores / np.sqrt(np.float32(size // heads)), np.float32(-np.inf))
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    y = np.einsum("nhw,nwhk->nhk", shares, split(window @ value)).reshape(len(x), size)
    y = y @ weights("attended_kernel") + weights("attended_bias")
    x = _gate(weights, "attention_gate", x, y)
    y = _layer_norm(weights, "dense_norm", x) @ weights("hidden_kernel") + weights("hidden_bias")
    y = np.maximum(y, 0) @ weights("dense_kernel") + weights("dense_bias")
    y = _gate(weights, "dense_gate", x, y)
    memory, valid = carry["memory"].copy(), np.minimum(carry["valid"], 1)
    memory[rows[:, 0], order[:, 0]] = np.where(np.isfinite(y), normed, np.float32(0))
    valid[rows[:, 0], order[:, 0]] = 2
    return y, {"memory": memory, "valid": valid}


def sinusoids(length: int, size: int) -> Array:
    """float32[length, size], sines and cosines of each distance."""
    half = (size + 1) // 2
    angle = np.arange(length)[:, None] * 10_000.0 ** (-np.arange(half) / half)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)[:, :size].astype(np.float32)


def _gate(weights: Weights, name: str, x: Array, y: Array) -> Array:
    inputs = np.maximum(y, 0) @ weights(f"{name}.input")
    size = x.shape[-1]
    r, z = np.split(inputs[:, : 2 * size] + x @ weights(f"{name}.state"), 2, axis=-1)
    z = sigmoid(z - weights(f"{name}.bias"))
    h = np.tanh(inputs[:, 2 * size :] + (sigmoid(r) * x) @ weights(f"{name}.candidate"))
    return (1 - z) * x + z * h


def _layer_norm(weights: Weights, name: str, x: Array, epsilon: float = 1e-6) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(epsilon))
    return x * weights(f"{name}.scale") + weights(f"{name}.bias")


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def _units(*names: str) -> Callable[[Description], dict[str, tuple[int, ...]]]:
    """The shapes of a carry with a number for each unit in each of these arrays."""
    return lambda core: dict.fromkeys(names, (core.get("state_size") or core["size"],))


def _matrices(core: Description) -> dict[str, tuple[int, ...]]:
    width = core["size"] // core["heads"]
    return {"state": (core["heads"], width, width)}


def _window(core: Description) -> dict[str, tuple[int, ...]]:
    return {"memory": (core["memory_length"], core["size"]), "valid": (core["memory_length"],)}


# By their types in policy.json.
CORES = {
    "lstm": NumpyCore(_lstm, _units("c", "h")),
    "gru": NumpyCore(_gru, _units("h")),
    "mingru": NumpyCore(_mingru, _units("h")),
    "lru": NumpyCore(_lru, _units("imaginary", "real")),
    "s5": NumpyCore(_s5, _units("imaginary", "real")),
    "gated_delta": NumpyCore(_gated_delta, _matrices),
    "gtrxl": NumpyCore(_gtrxl, _window),
    "none": NumpyCore(lambda weights, x, carry, core: (x, {}), lambda core: {}),
}
