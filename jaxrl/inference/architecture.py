"""The layers of a built-in network as JSON values, to run the weights without this package."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from envs.base import Box, Dict, Discrete, EnvSpec, MultiDiscrete, Space
from jaxrl.config import NetworkConfig
from jaxrl.networks.encoders import CONVOLUTIONS, IMPALA_CHANNELS, encoder_names
from jaxrl.networks.heads import head_name

Layer = dict[str, Any]

_ENCODERS = {"identity", "mlp", "impala", *CONVOLUTIONS}
_CORES = {"lstm": "Recurrent", "gru": "Recurrent", "mingru": "MinGRU", "lru": "LRU", "none": ""}  # modules
_HEADS = {"categorical", "multi_categorical", "gaussian", "tanh_gaussian"}


def describe(network: NetworkConfig, spec: EnvSpec) -> dict[str, Any] | None:
    """Describes a network for `numpy_policy`; None where it has a user's own parts or uses bfloat16.

    Returns:
      `trunks` (by name: `encoders`, a list of `input` and `layers`; and `core`), `head` and `value`.
      `weights` are prefixes of the names of arrays.
    """
    names = encoder_names(network.encoder, spec.observation_space)
    head = head_name(network, spec)
    known = {*names.values()} <= _ENCODERS and network.core in _CORES and head in _HEADS
    if not known or network.compute_dtype != "float32":
        return None
    counts: Counter[str] = Counter()
    trunks = {}
    for trunk in ("policy", "value") if network.separate_value else ("policy",):
        encoders = [
            {
                "input": f"obs.{key}" if key else "obs",
                "layers": _encoder(name, network, _part(spec.observation_space, key), counts),
            }
            for key, name in names.items()
        ]
        trunks[trunk] = {"encoders": encoders, "core": _core(network, counts)}
    return {"trunks": trunks, "head": _head(head, spec.action_space), "value": {"weights": "value"}}


def _part(space: Space, key: str) -> Space:
    return space[key] if isinstance(space, Dict) else space


def _named(module: str, counts: Counter[str]) -> str:
    """The name of the next module of a class: flax numbers them in the order of creation."""
    counts[module] += 1
    return f"{module}_{counts[module] - 1}"


def _encoder(name: str, network: NetworkConfig, space: Space, counts: Counter[str]) -> list[Layer]:
    if name in ("identity", "mlp"):
        layers = [*_vector(space)]
        if name == "mlp":
            layers += _dense(_named("MLP", counts), network.hidden_sizes, network.activation)
        return layers
    if name == "impala":
        module = _named("Impala", counts)
        layers = [*_image(space), *_impala(module)]
    else:
        module = _named("ConvEncoder", counts)
        layers = _image(space)
        for i, (_, _, stride) in enumerate(CONVOLUTIONS[name]):
            layers += [_conv(f"{module}.Conv_{i}", stride, "VALID"), {"op": "relu"}]
    return [*layers, {"op": "flatten"}, *_dense(module, network.hidden_sizes, "relu")]


def _image(space: Space) -> list[Layer]:
    assert not isinstance(space, Dict)
    return [{"op": "divide", "by": 255}] if np.dtype(space.dtype) == np.uint8 else []


def _vector(space: Space) -> list[Layer]:
    if isinstance(space, Discrete):
        return [{"op": "one_hot", "sizes": [space.n]}]
    if isinstance(space, MultiDiscrete):
        return [{"op": "one_hot", "sizes": list(space.nvec)}]
    return [*_image(space), {"op": "flatten"}]


def _dense(module: str, sizes: tuple[int, ...], activation: str) -> list[Layer]:
    layers: list[Layer] = []
    for i in range(len(sizes)):
        layers += [{"op": "dense", "weights": f"{module}.Dense_{i}"}, {"op": activation}]
    return layers


def _conv(weights: str, stride: int, padding: str) -> Layer:
    return {"op": "conv", "weights": weights, "stride": stride, "padding": padding}


def _impala(module: str) -> list[Layer]:
    layers: list[Layer] = []
    for block in range(len(IMPALA_CHANNELS)):
        first, *rest = (_conv(f"{module}.Conv_{5 * block + i}", 1, "SAME") for i in range(5))
        layers += [first, {"op": "max_pool", "window": 3, "stride": 2}]
        for a, b in (rest[:2], rest[2:]):
            layers.append({"op": "residual", "layers": [{"op": "relu"}, a, {"op": "relu"}, b]})
    return [*layers, {"op": "relu"}]


def _core(network: NetworkConfig, counts: Counter[str]) -> Layer:
    if network.core == "none":
        return {"type": "none"}
    core = {"type": network.core, "weights": _named(_CORES[network.core], counts), "size": network.core_size}
    return core | ({"activation": network.activation} if network.core == "lru" else {})


def _head(name: str, space: Space) -> Layer:
    head: Layer = {"type": name, "weights": "head"}
    if isinstance(space, MultiDiscrete):
        head["nvec"] = list(space.nvec)
    if isinstance(space, Box):
        # JSON has no infinity.
        head |= {
            side: [x if math.isfinite(x) else None for x in getattr(space, side)] for side in ("low", "high")
        }
    return head
