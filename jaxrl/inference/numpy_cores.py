"""One step of each core with numpy alone; exported beside numpy_policy.py, which uses it.

A core takes its weights by name, its input [B, F], its carry, zeros where an episode begins, and returns its
output [B, H] and the carry after the step.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Weights = Callable[[str], Array]
Carry = dict[str, Array]
# Of a core in policy.json: its type, the name of its weights and its sizes.
Description = dict[str, Any]

# Of the norms of cores with a matrix for each head.
EPSILON = np.float32(1e-2)


@dataclasses.dataclass(frozen=True)
class NumpyCore:
    """A type of core: its step, and the shapes of its carry's arrays, without the batch."""

    step: Callable[[Weights, Array, Carry, Description], tuple[Array, Carry]]
    carry: Callable[[Description], dict[str, tuple[int, ...]]]


def gelu(x: Array) -> Array:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


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


def _fast_weights(
    weights: Weights, x: Array, carry: Carry, core: Description, remember: Callable[..., tuple[Array, Carry]]
) -> tuple[Array, Carry]:
    """The common part of cores with a matrix for each head; they differ in `remember`."""
    u = _layer_norm(weights, "norm", x)
    *parts, gate = np.split(u @ weights("input"), 4, axis=-1)
    parts = [part.reshape(len(x), core["heads"], -1) for part in parts]
    y, after = remember(weights, u, parts, carry)
    y = y / np.sqrt(np.square(y).mean(axis=-1, keepdims=True) + EPSILON)
    y = y.reshape(len(x), -1) * weights("scale") * silu(gate)
    return x + y @ weights("output"), after


def _gated_delta(weights: Weights, u: Array, parts: list[Array], carry: Carry) -> tuple[Array, Carry]:
    query, key, value = (silu(part) for part in parts)
    query, key = (x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + EPSILON) for x in (query, key))
    decay, strength = np.split(u @ weights("rates") + weights("bias"), 2, axis=-1)
    state = carry["state"] * (1 - sigmoid(decay))[..., None, None]  # exp(-softplus(x)) = 1 - sigmoid(x)
    error = sigmoid(strength)[..., None] * (value - _read(state, key))
    state = state + error[..., None] * key[..., None, :]
    return _read(state, query), {"state": state}


def _linear_attention(weights: Weights, u: Array, parts: list[Array], carry: Carry) -> tuple[Array, Carry]:
    query, key, value = parts
    decay = 1 - np.exp2(np.float32(-5) - np.arange(key.shape[1], dtype=np.float32))
    key = key / np.sqrt(np.float32(key.shape[-1]))
    state = carry["state"] * decay[:, None, None] + value[..., None] * key[..., None, :]
    return _read(state, query), {"state": state}


def _mamba2(weights: Weights, u: Array, parts: list[Array], carry: Carry) -> tuple[Array, Carry]:
    c, b, value = (silu(part) for part in parts)
    step = -log_sigmoid(-(u @ weights("rates") + weights("bias")))
    decay = np.exp(-np.exp(weights("log_a")) * step)
    state = carry["state"] * decay[..., None, None] + (step[..., None] * value)[..., None] * b[..., None, :]
    return _read(state, c) + weights("skip")[:, None] * value, {"state": state}


def _mlstm(weights: Weights, u: Array, parts: list[Array], carry: Carry) -> tuple[Array, Carry]:
    query, key, value = parts
    log_i, forget = np.split(u @ weights("rates") + weights("bias"), 2, axis=-1)
    log_f = log_sigmoid(forget) + carry["stabiliser"]
    m = np.maximum(np.maximum(log_f, log_i), 0)
    value = np.concatenate([value, np.ones_like(value[..., :1])], axis=-1) * np.exp(log_i - m)[..., None]
    key = key / np.sqrt(np.float32(key.shape[-1]))
    state = carry["state"] * np.exp(log_f - m)[..., None, None] + value[..., None] * key[..., None, :]
    y = _read(state, query)
    size = np.maximum(np.abs(y[..., -1:]), np.exp(-m)[..., None]) + np.float32(1e-6)
    return y[..., :-1] / size, {"stabiliser": m, "state": state}


def _read(state: Array, query: Array) -> Array:
    return np.einsum("nhvk,nhk->nhv", state, query)


def _ffm(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    size, heads = core["size"], core["heads"]
    traces = core["state_size"] // heads
    projected = x @ weights("input") + weights("input_bias")
    written, write, gate, skip = np.split(projected, (traces, 2 * traces, 2 * traces + size), axis=-1)
    a = np.exp(-np.abs(weights("decay"))[:, None] + 1j * weights("angle"))
    before = (carry["real"] + 1j * carry["imaginary"]).reshape(-1, traces, heads)
    state = (a * before + (written * sigmoid(write))[..., None]).reshape(len(x), -1)
    after = {"real": state.real.astype(np.float32), "imaginary": state.imag.astype(np.float32)}
    flat = np.concatenate([after["real"], after["imaginary"]], axis=-1)
    z = _normalized(flat @ weights("output") + weights("output_bias"))
    return skip + sigmoid(gate) * (z - skip), after


def _slstm(weights: Weights, x: Array, carry: Carry, core: Description) -> tuple[Array, Carry]:
    h = carry["h"].reshape(len(x), core["heads"], -1)
    recurrent = np.einsum("nhi,hig->nhg", h, weights("recurrent")).reshape(*h.shape[:2], 4, -1)
    recurrent = np.swapaxes(recurrent, 1, 2).reshape(len(x), -1)
    i, f, z, o = np.split(x @ weights("input") + weights("bias") + recurrent, 4, axis=-1)
    kept = carry["m"] - np.logaddexp(np.float32(0), -f)
    m = np.where(carry["n"] == 0, i, np.maximum(i, kept))
    keep, write = np.exp(np.where(carry["n"] == 0, np.float32(-np.inf), kept - m)), np.exp(i - m)
    c = keep * carry["c"] + write * np.tanh(z)
    n = keep * carry["n"] + write
    return sigmoid(o) * c / n, {"c": c, "h": sigmoid(o) * c / n, "m": m, "n": n}


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
    return _normalized(x, epsilon) * weights(f"{name}.scale") + weights(f"{name}.bias")


def _normalized(x: Array, epsilon: float = 1e-6) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(epsilon))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def log_sigmoid(x: Array) -> Array:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _units(*names: str) -> Callable[[Description], dict[str, tuple[int, ...]]]:
    """The shapes of a carry with a number for each unit in each of these arrays."""
    return lambda core: dict.fromkeys(names, (core.get("state_size") or core["size"],))


def _matrices(core: Description) -> dict[str, tuple[int, ...]]:
    width = core["size"] // core["heads"]
    return {"state": (core["heads"], width, width)}


def _normalised(core: Description) -> dict[str, tuple[int, ...]]:
    width = core["size"] // core["heads"]
    return {"stabiliser": (core["heads"],), "state": (core["heads"], width + 1, width)}


def _window(core: Description) -> dict[str, tuple[int, ...]]:
    return {"memory": (core["memory_length"], core["size"]), "valid": (core["memory_length"],)}


# By their types in policy.json.
CORES = {
    "lstm": NumpyCore(_lstm, _units("c", "h")),
    "gru": NumpyCore(_gru, _units("h")),
    "mingru": NumpyCore(_mingru, _units("h")),
    "lru": NumpyCore(_lru, _units("imaginary", "real")),
    "s5": NumpyCore(_s5, _units("imaginary", "real")),
    "gated_delta": NumpyCore(functools.partial(_fast_weights, remember=_gated_delta), _matrices),
    "linear_attention": NumpyCore(functools.partial(_fast_weights, remember=_linear_attention), _matrices),
    "mamba2": NumpyCore(functools.partial(_fast_weights, remember=_mamba2), _matrices),
    "mlstm": NumpyCore(functools.partial(_fast_weights, remember=_mlstm), _normalised),
    "gtrxl": NumpyCore(_gtrxl, _window),
    "ffm": NumpyCore(_ffm, _units("imaginary", "real")),
    "slstm": NumpyCore(_slstm, _units("c", "h", "m", "n")),
    "none": NumpyCore(lambda weights, x, carry, core: (x, {}), lambda core: {}),
}
