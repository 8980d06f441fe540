"""Nodes of an ONNX graph for each layer and head that a network describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.inference.numpy_policy import MASKED_LOGIT

if TYPE_CHECKING:
    from jaxrl.inference.onnx_graph import Graph

Layer = dict[str, Any]


def _layer_norm(graph: Graph, layer: Layer, x: str) -> str:
    # Not LayerNormalization: its scale would be of all normalised dimensions, not of the last alone.
    axes = graph.constant(range(-layer["axes"], 0), np.int64)
    x = graph.op("Sub", x, graph.op("ReduceMean", x, axes))
    variance = graph.op("ReduceMean", graph.op("Mul", x, x), axes)
    std = graph.op("Sqrt", graph.op("Add", variance, graph.constant(layer["epsilon"])))
    scale, bias = (graph.param(f"{layer['weights']}.{part}") for part in ("scale", "bias"))
    return graph.op("Add", graph.op("Mul", graph.op("Div", x, std), scale), bias)


def _max_pool(graph: Graph, layer: Layer, x: str) -> str:
    size = [layer["window"]] * 2
    stride = [layer["stride"]] * 2
    y = graph.op("Transpose", x, perm=[0, 3, 1, 2])
    y = graph.op("MaxPool", y, kernel_shape=size, strides=stride, auto_pad="SAME_UPPER")
    return graph.op("Transpose", y, perm=[0, 2, 3, 1])


def _convolution(graph: Graph, layer: Layer, x: str) -> str:
    y = graph.op("Transpose", x, perm=[0, 3, 1, 2])
    parameters = graph.kernel(f"{layer['weights']}.kernel"), graph.param(f"{layer['weights']}.bias")
    padding = {"SAME": "SAME_UPPER", "VALID": "VALID"}[layer["padding"]]
    y = graph.op("Conv", y, *parameters, strides=[layer["stride"]] * 2, auto_pad=padding)
    return graph.op("Transpose", y, perm=[0, 2, 3, 1])


def _channels_last(graph: Graph, layer: Layer, x: str) -> str:
    y = graph.op("Transpose", x, perm=[0, *(1 + axis for axis in layer["order"])])
    return graph.op("Reshape", y, graph.constant([0, 0, 0, -1], np.int64))  # 0 keeps an axis


def _one_hot(graph: Graph, layer: Layer, x: str) -> str:
    sizes = layer["sizes"]
    columns = graph.op("Reshape", x, graph.constant([-1, len(sizes)], np.int64))
    columns = graph.cast(columns, np.int64)
    parts = []
    for i, (size, first) in enumerate(zip(sizes, layer.get("start", [0] * len(sizes)), strict=True)):
        column = graph.op("Gather", columns, graph.constant([i], np.int64), axis=1)
        parts.append(graph.op("Equal", column, graph.constant([range(first, first + size)], np.int64)))
    joined = parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)
    return graph.cast(joined, np.float32)


OPERATIONS: dict[str, Callable[[Graph, Layer, str], str]] = {
    "one_hot": _one_hot,
    "channels_last": _channels_last,
    "divide": lambda graph, layer, x: graph.op("Div", x, graph.constant(layer["by"])),
    "flatten": lambda graph, layer, x: graph.op("Flatten", x, axis=1),
    "dense": lambda graph, layer, x: graph.dense(layer["weights"], x),
    "conv": _convolution,
    "layer_norm": _layer_norm,
    "residual": lambda graph, layer, x: graph.op("Add", x, graph.run(layer["layers"], x)),
    "max_pool": _max_pool,
    "tanh": lambda graph, layer, x: graph.op("Tanh", x),
    "relu": lambda graph, layer, x: graph.op("Relu", x),
    "silu": lambda graph, layer, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
    "gelu": lambda graph, layer, x: graph.op("Gelu", x, approximate="tanh"),
}


def _mask_scores(graph: Graph, x: str, masked: bool, result: str) -> str:
    if not masked:
        return graph.op("Identity", x, result=result)
    return graph.op("Where", "action_mask", x, graph.constant(MASKED_LOGIT), result=result)


def _logits(graph: Graph, head: Layer, x: str, masked: bool) -> str:
    logits = graph.dense(f"{head['weights']}.logits", x)
    return _mask_scores(graph, logits, masked, "distribution.logits")


def act_discrete(graph: Graph, start: Sequence[int], action: str) -> None:
    """Adds the result `action` in the environment's numbers, of one that counts from 0."""
    action = graph.cast(action, np.int32)
    if start:
        graph.op("Add", action, graph.constant(start, np.int32), result="action")
    else:
        graph.op("Identity", action, result="action")


def _categorical(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    logits = _logits(graph, head, x, masked)
    act_discrete(graph, head.get("start", ()), graph.op("ArgMax", logits, axis=1, keepdims=0))


def _multi_categorical(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    logits = _logits(graph, head, x, masked)
    sizes = graph.constant(head["nvec"], np.int64)
    parts = graph.several("Split", (logits, sizes), len(head["nvec"]), axis=1)
    best = [graph.op("ArgMax", part, axis=1, keepdims=1) for part in parts]
    act_discrete(graph, head.get("start", ()), graph.op("Concat", *best, axis=1))


def _q(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    q = _mask_scores(graph, graph.dense(f"{head['weights']}.q", x), masked, "distribution.q")
    act_discrete(graph, head.get("start", ()), graph.op("ArgMax", q, axis=1, keepdims=0))


def _dueling_q(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    value, advantage = (graph.dense(f"{head['weights']}.{part}", x) for part in ("value", "advantage"))
    mean = graph.op("ReduceMean", advantage, graph.constant([1], np.int64))
    q = graph.op("Sub", graph.op("Add", value, advantage), mean)
    q = _mask_scores(graph, q, masked, "distribution.q")
    act_discrete(graph, head.get("start", ()), graph.op("ArgMax", q, axis=1, keepdims=0))


def _gaussian(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    _act_within(graph, head, _mean(graph, head, x))


def _tanh_gaussian(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    mean = _mean(graph, head, x)
    low, high = _bounds(head)
    half = graph.op("Mul", graph.op("Tanh", mean), graph.constant((high - low) / 2))
    _act_within(graph, head, graph.op("Add", half, graph.constant((high + low) / 2)))


def _mean(graph: Graph, head: Layer, x: str) -> str:
    """The mean; the deviations are results as well."""
    mean = graph.op("Identity", graph.dense(f"{head['weights']}.mean", x), result="distribution.mean")
    log_std = graph.param(f"{head['weights']}.log_std")
    graph.op("Expand", log_std, graph.op("Shape", mean), result="distribution.log_std")
    return mean


def _gaussian_mixture(graph: Graph, head: Layer, x: str, masked: bool) -> None:
    logits = _logits(graph, head, x, masked=False)
    shape = graph.constant([-1, head["components"], len(head["low"])], np.int64)
    mean = graph.op(
        "Add", graph.dense(f"{head['weights']}.mean", x), graph.param(f"{head['weights']}.center")
    )
    mean = graph.op("Reshape", mean, shape, result="distribution.mean")
    std = graph.op("Softplus", graph.dense(f"{head['weights']}.std", x))
    log_std = graph.op("Log", graph.op("Add", std, graph.constant(head["least_std"])))
    graph.op("Reshape", log_std, shape, result="distribution.log_std")
    best = graph.op("ArgMax", logits, axis=1, keepdims=1)
    chosen = graph.op("Equal", best, graph.constant([range(head["components"])], np.int64))
    chosen = graph.op("Unsqueeze", graph.cast(chosen, np.float32), graph.constant([2], np.int64))
    component = graph.constant([1], np.int64)
    _act_within(graph, head, graph.op("ReduceSum", graph.op("Mul", mean, chosen), component, keepdims=0))


def _act_within(graph: Graph, head: Layer, action: str) -> None:
    low, high = _bounds(head)
    if "middle" in head:
        action = graph.op("Mul", action, graph.constant(head["half_width"]))
        action = graph.op("Add", action, graph.constant(head["middle"]))
    above = graph.op("Max", action, graph.constant(low))
    graph.op("Min", above, graph.constant(high), result="action")


def _bounds(head: Layer) -> tuple[np.ndarray, np.ndarray]:
    """(low, high); None in the description is no bound."""
    low = np.array([-np.inf if x is None else x for x in head["low"]], np.float32)
    return low, np.array([np.inf if x is None else x for x in head["high"]], np.float32)


# Each adds the results `action` and `distribution.*`.
HEADS: dict[str, Callable[[Graph, Layer, str, bool], None]] = {
    "categorical": _categorical,
    "multi_categorical": _multi_categorical,
    "gaussian": _gaussian,
    "tanh_gaussian": _tanh_gaussian,
    "gaussian_mixture": _gaussian_mixture,
    "q": _q,
    "dueling_q": _dueling_q,
}
