"""Runs an exported policy with numpy alone; `jaxrl export` copies this file and numpy_cores.py.

    from numpy_policy import NumpyPolicy

    policy = NumpyPolicy(".")  # the folder with policy.json
    carry = policy.initial_carry(batch=1)
    reset = np.ones(1, bool)  # the first observation of an episode
    while ...:
        out = policy(obs, carry, reset)
        carry = out["carry"]
        ... = env.step(out["action"][0])

The layers are listed in policy.json, under "architecture"; weights are arrays of policy.npz or
policy.safetensors. The head reads the first trunk, the value the last one. Everything is float32.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Beside this file, wherever that is.
_cores: Any = importlib.import_module(f"{__package__}.numpy_cores" if __package__ else "numpy_cores")

# The logit and the Q-value of a masked action, as in training.
MASKED_LOGIT = np.float32(-1e9)

Array = Any
Described = dict[str, Any]  # a part of policy.json
Chosen = tuple[Array, dict[str, Array]]  # the action, and the numbers that it was chosen by


def read_description(folder: str | Path) -> dict[str, Any]:
    """The content of policy.json."""
    return json.loads((Path(folder) / "policy.json").read_text())


def read_arrays(folder: str | Path, prefix: str = "") -> dict[str, Array]:
    """The arrays whose names begin with `prefix`, by the rest of the name, from whichever file exists."""
    folder = Path(folder)
    if (folder / "policy.npz").exists():
        with np.load(folder / "policy.npz", allow_pickle=False) as file:
            return {x.removeprefix(prefix): file[x] for x in file.files if x.startswith(prefix)}
    from safetensors.numpy import load_file

    found = load_file(folder / "policy.safetensors").items()
    return {name.removeprefix(prefix): x for name, x in found if name.startswith(prefix)}


class NumpyPolicy:
    """`(obs, carry, reset[, action_mask]) -> {"action", "value", "distribution", "carry"}` for B rows.

    Arguments:
      obs: [B, ...], not normalised; a dict if the environment's observations are dicts.
      carry: `initial_carry(B)`, then the carry of the last result.
      reset: bool[B], True if an episode begins: the carry is then taken as zeros.
      action_mask: bool[B, A], if the environment has masks.

    Of an export of several policies, `member` names the one: `member_0` and so on. Observations that are not
    finite and a missing mask are a ValueError.
    """

    def __init__(self, folder: str | Path, member: str = ""):
        self.description = read_description(folder)
        self._has_mask = "action_mask" in self.description["inputs"]
        if member:
            self.description = self.description["members"][member]
        self._network = self.description["architecture"]
        if self._network is None:
            raise ValueError("policy.json describes no architecture: its network is not one of jaxrl's own")
        self._arrays = read_arrays(folder, f"{member}." if member else "")

    def initial_carry(self, batch: int) -> dict[str, Any]:
        trunks = self._network["trunks"].items()
        return {trunk: self._initial(part["core"], batch) for trunk, part in trunks}

    def __call__(
        self, obs: Any, carry: Any, reset: Array, action_mask: Array | None = None
    ) -> dict[str, Any]:
        if self._has_mask and action_mask is None:
            raise ValueError("`action_mask` is missing: the environment has masks")
        features = []
        after = {}
        for trunk, part in self._network["trunks"].items():
            encoded = [self._encode(encoder, obs) for encoder in part["encoders"]]
            x = np.concatenate(encoded, axis=-1)
            x, after[trunk] = self._remember(part["core"], x, carry[trunk], reset)
            features.append(x)
        head = self._network["head"]
        value_head = self._network.get("value")
        action, distribution = _HEADS[head["type"]](self, head, features[0], action_mask)
        action = in_own_numbers(action, head)
        if value_head is None:
            value = distribution["q"].max(axis=-1)
        else:
            value = self.dense(value_head["weights"], features[-1])[:, 0]
        return {"action": action, "value": value, "distribution": distribution, "carry": after}

    def dense(self, name: str, x: Array) -> Array:
        return x @ self.array(f"{name}.kernel") + self.array(f"{name}.bias")

    def array(self, name: str) -> Array:
        return self._arrays[f"params.{name}"]

    def _encode(self, encoder: dict[str, Any], obs: Any) -> Array:
        name = encoder["input"]
        x = np.asarray(obs[name.removeprefix("obs.")] if isinstance(obs, dict) else obs)
        if x.dtype.kind == "f" and not np.isfinite(x).all():  # Of NaN the first action would be the best.
            raise ValueError(f"`{name}` must be finite")
        if f"normalizer.{name}.mean" in self._arrays:
            mean, std = (self._arrays[f"normalizer.{name}.{part}"] for part in ("mean", "std"))
            x = (x.astype(np.float32) - mean) / std
            clip = self.description["normalizer"]["clip"]
            x = np.clip(x, -clip, clip) if clip else x
        return self.run(encoder["layers"], x).astype(np.float32)

    def run(self, layers: list[dict[str, Any]], x: Array) -> Array:
        for layer in layers:
            x = _OPERATIONS[layer["op"]](self, layer, x)
        return x

    def _initial(self, core: Described, batch: int) -> dict[str, Any]:
        if core["type"] == "stack":
            return {f"layer_{i}": self._initial(layer, batch) for i, layer in enumerate(core["layers"])}
        shapes = _cores.CORES[core["type"]].carry(core)
        return {name: np.zeros((batch, *shape), np.float32) for name, shape in shapes.items()}

    def _remember(
        self, core: Described, x: Array, carry: dict[str, Any], reset: Array
    ) -> tuple[Array, dict[str, Any]]:
        after: dict[str, Any] = {}
        if core["type"] == "stack":
            # Each core normalises and adds by itself, or has a norm before it and is added to the one below.
            for i, layer in enumerate(core["layers"]):
                normed = self.run(core["norms"][i - 1 : i], x) if i else x
                y, after[f"layer_{i}"] = self._remember(layer, normed, carry[f"layer_{i}"], reset)
                x = x + y if i and core["norms"] else y
            return x, after
        carry = {
            name: np.where(reset.reshape(-1, *[1] * (value.ndim - 1)), np.float32(0), value)
            for name, value in carry.items()
        }
        weights = lambda name: self.array(f"{core['weights']}.{name}")  # noqa: E731
        if f"params.{core.get('weights')}.embedding" in self._arrays:
            x = x @ weights("embedding") + weights("embedding_bias")
        y, after = _cores.CORES[core["type"]].step(weights, x, carry, core)
        return (self.run([{"op": core["activation"]}], y) if "activation" in core else y), after


def in_own_numbers(action: Array, described: dict[str, Any]) -> Array:
    """Actions counted from 0 as the environment numbers them, which may `start` elsewhere."""
    return action + np.array(described["start"], action.dtype) if described.get("start") else action


def _one_hot(x: Array, sizes: list[int], start: list[int] | None) -> Array:
    columns = x.reshape(len(x), len(sizes))
    firsts = start or [0] * len(sizes)
    parts = [columns[:, i, None] == firsts[i] + np.arange(size) for i, size in enumerate(sizes)]
    return np.concatenate(parts, axis=-1).astype(np.float32)


def _channels_last(x: Array, order: list[int]) -> Array:
    moved = x.transpose(0, *(1 + axis for axis in order))
    return moved.reshape(*moved.shape[:3], -1)


def _patches(x: Array, size: int, stride: int, padding: str, fill: float = 0.0) -> Array:
    """[B, height, width, C] to [B, height', width', size * size, C]."""
    if padding == "SAME":
        short = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in x.shape[1:3]]
        x = np.pad(x, ((0, 0), *((n // 2, n - n // 2) for n in short), (0, 0)), constant_values=fill)
    height, width = ((n - size) // stride + 1 for n in x.shape[1:3])
    parts = [
        x[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return np.stack(parts, axis=3)


def _convolution(policy: NumpyPolicy, layer: Described, x: Array) -> Array:
    kernel, bias = (policy.array(f"{layer['weights']}.{part}") for part in ("kernel", "bias"))
    patches = _patches(x.astype(np.float32), len(kernel), layer["stride"], layer["padding"])
    return patches.reshape(*patches.shape[:3], -1) @ kernel.reshape(-1, kernel.shape[-1]) + bias


def _layer_norm(policy: NumpyPolicy, layer: Described, x: Array) -> Array:
    scale, bias = (policy.array(f"{layer['weights']}.{part}") for part in ("scale", "bias"))
    axes = tuple(range(-layer["axes"], 0))
    x = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(x).mean(axis=axes, keepdims=True)
    return x / np.sqrt(variance + np.float32(layer["epsilon"])) * scale + bias


def _on_floats(function: Callable[[Array], Array]) -> Operation:
    return lambda policy, layer, x: function(x.astype(np.float32))


Operation = Callable[[NumpyPolicy, Described, Array], Array]
_OPERATIONS: dict[str, Operation] = {
    "one_hot": lambda policy, layer, x: _one_hot(x, layer["sizes"], layer.get("start")),
    "channels_last": lambda policy, layer, x: _channels_last(x, layer["order"]),
    "divide": lambda policy, layer, x: x.astype(np.float32) / np.float32(layer["by"]),
    "flatten": lambda policy, layer, x: x.reshape(len(x), -1),
    "dense": lambda policy, layer, x: policy.dense(layer["weights"], x.astype(np.float32)),
    "conv": _convolution,
    "layer_norm": _layer_norm,
    "residual": lambda policy, layer, x: x + policy.run(layer["layers"], x),
    "max_pool": lambda policy, layer, x: _patches(x, layer["window"], layer["stride"], "SAME", -np.inf).max(
        axis=3
    ),
    "tanh": _on_floats(np.tanh),
    "relu": _on_floats(lambda x: np.maximum(x, 0)),
    "silu": _on_floats(_cores.silu),
    "gelu": _on_floats(_cores.gelu),
}


def _categorical(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    logits = _mask_scores(policy.dense(f"{head['weights']}.logits", x), mask)
    return _best(logits), {"logits": logits}


def _mask_scores(x: Array, mask: Array | None) -> Array:
    return x if mask is None else np.where(mask, x, MASKED_LOGIT)


def _best(x: Array) -> Array:
    return x.argmax(axis=-1).astype(np.int32)


def _multi_categorical(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    _, distribution = _categorical(policy, head, x, mask)
    parts = np.split(distribution["logits"], np.cumsum(head["nvec"])[:-1], axis=-1)
    return np.stack([_best(part) for part in parts], axis=-1), distribution


def _gaussian(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    mean = policy.dense(f"{head['weights']}.mean", x)
    log_std = np.broadcast_to(policy.array(f"{head['weights']}.log_std"), mean.shape)
    return _within(head, mean), {"mean": mean, "log_std": log_std}


def _tanh_gaussian(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    _, distribution = _gaussian(policy, head, x, mask)
    low, high = _bounds(head)
    unit = np.float32(0.5) * (np.tanh(distribution["mean"]) + 1)
    return np.clip(low + unit * (high - low), low, high), distribution


def _gaussian_mixture(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    shape = (len(x), head["components"], len(head["low"]))
    logits, mean, std = (policy.dense(f"{head['weights']}.{part}", x) for part in ("logits", "mean", "std"))
    mean = (mean + policy.array(f"{head['weights']}.center")).reshape(shape)
    std = np.logaddexp(np.float32(0), std) + np.float32(head["least_std"])
    distribution = {"logits": logits, "mean": mean, "log_std": np.log(std).reshape(shape)}
    return _within(head, mean[np.arange(len(x)), _best(logits)]), distribution


def _q(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    q = _mask_scores(policy.dense(f"{head['weights']}.q", x), mask)
    return _best(q), {"q": q}


def _dueling_q(policy: NumpyPolicy, head: Described, x: Array, mask: Array | None) -> Chosen:
    value, advantage = (policy.dense(f"{head['weights']}.{part}", x) for part in ("value", "advantage"))
    q = _mask_scores(value + advantage - advantage.mean(axis=-1, keepdims=True), mask)
    return _best(q), {"q": q}


def _within(head: dict[str, Any], action: Array) -> Array:
    """Scaled, if the head has a scale, and clipped."""
    if "middle" in head:
        middle, half_width = (np.array(head[name], np.float32) for name in ("middle", "half_width"))
        action = middle + half_width * action
    return np.clip(action, *_bounds(head))


def _bounds(head: dict[str, Any]) -> tuple[Array, Array]:
    """(low, high); None in the description is no bound."""
    low = np.array([-np.inf if x is None else x for x in head["low"]], np.float32)
    return low, np.array([np.inf if x is None else x for x in head["high"]], np.float32)


_HEADS: dict[str, Callable[..., Chosen]] = {
    "categorical": _categorical,
    "multi_categorical": _multi_categorical,
    "gaussian": _gaussian,
    "tanh_gaussian": _tanh_gaussian,
    "gaussian_mixture": _gaussian_mixture,
    "q": _q,
    "dueling_q": _dueling_q,
}
