"""Nodes of an ONNX graph for one step of each core."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.inference.numpy_cores import EPSILON, sinusoids, zero_order_hold

if TYPE_CHECKING:
    from jaxrl.inference.onnx_graph import Graph

Layer = dict[str, Any]


def _product(graph: Graph, core: Layer, x: str) -> str:
    parts = (graph.param(f"{core['weights']}.{part}") for part in ("input", "bias"))
    return graph.op("Gemm", x, *parts)


def _lstm(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    recurrent = graph.op("MatMul", before["h"], graph.param(f"{core['weights']}.recurrent"))
    gates = graph.op("Add", _product(graph, core, x), recurrent)
    i, f, g, o = graph.several("Split", (gates,), 4, axis=1, num_outputs=4)
    i, f, o = (graph.op("Sigmoid", x) for x in (i, f, o))
    kept = graph.op("Mul", f, before["c"])
    c = graph.op("Add", kept, graph.op("Mul", i, graph.op("Tanh", g)), result=f"{after}.c")
    return graph.op("Mul", o, graph.op("Tanh", c), result=f"{after}.h")


def _gru(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    recurrent = graph.op("MatMul", before["h"], graph.param(f"{core['weights']}.recurrent"))
    xr, xz, xn = graph.several("Split", (_product(graph, core, x),), 3, axis=1, num_outputs=3)
    hr, hz, hn = graph.several("Split", (recurrent,), 3, axis=1, num_outputs=3)
    r, z = (graph.op("Sigmoid", graph.op("Add", a, b)) for a, b in ((xr, hr), (xz, hz)))
    n = graph.op("Tanh", graph.op("Add", xn, graph.op("Mul", r, hn)))
    return _interpolate(graph, z, before["h"], n, f"{after}.h")


def _mingru(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    z, n = graph.several("Split", (_product(graph, core, x),), 2, axis=1, num_outputs=2)
    return _interpolate(graph, graph.op("Sigmoid", z), n, before["h"], f"{after}.h")


def _lru(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    log_nu, log_theta, log_gamma = graph.value_of(f"{core['weights']}.eigenvalues").astype(np.float64)
    eigenvalue = np.exp(-np.exp(log_nu) + 1j * np.exp(log_theta))
    real = graph.constant(eigenvalue.real)
    imaginary = graph.constant(eigenvalue.imag)
    product = graph.op("MatMul", x, graph.param(f"{core['weights']}.input"))
    scaled = graph.op("Mul", product, graph.constant(np.tile(np.exp(log_gamma), 2)))
    inputs = graph.several("Split", (scaled,), 2, axis=1, num_outputs=2)
    re = before["real"]
    im = before["imaginary"]
    turned = graph.op("Sub", graph.op("Mul", real, re), graph.op("Mul", imaginary, im))
    h_real = graph.op("Add", turned, inputs[0], result=f"{after}.real")
    turned = graph.op("Add", graph.op("Mul", real, im), graph.op("Mul", imaginary, re))
    h_imaginary = graph.op("Add", turned, inputs[1], result=f"{after}.imaginary")
    state = graph.op("Concat", h_real, h_imaginary, axis=1)
    y = graph.op("MatMul", state, graph.param(f"{core['weights']}.output"))
    skipped = graph.op("Gemm", x, *(graph.param(f"{core['weights']}.{part}") for part in ("skip", "bias")))
    return graph.op("Add", y, skipped)


def _s5(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    a, held = zero_order_hold(graph.value_of(f"{core['weights']}.spectrum"))
    u = _layer_norm(graph, core, "norm", x)
    product = graph.op("MatMul", u, _weight(graph, core, "input"))
    driven = graph.several("Split", (product,), 2, axis=1, num_outputs=2)
    inputs = _times(graph, held, (driven[0], driven[1]))
    turned = _times(graph, a, (before["real"], before["imaginary"]))
    real = graph.op("Add", turned[0], inputs[0], result=f"{after}.real")
    imaginary = graph.op("Add", turned[1], inputs[1], result=f"{after}.imaginary")
    state = graph.op("Concat", real, imaginary, axis=1)
    y = graph.op("MatMul", state, _weight(graph, core, "output"))
    y = graph.op("Add", y, graph.op("Mul", u, _weight(graph, core, "skip")))
    y = graph.op("Gelu", y, approximate="tanh")
    gate = graph.op("Gemm", y, _weight(graph, core, "gate"), _weight(graph, core, "bias"))
    return graph.op("Add", x, graph.op("Mul", y, graph.op("Sigmoid", gate)))


def _gated_delta(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    heads = core["heads"]
    size = core["size"]
    u = _layer_norm(graph, core, "norm", x)
    product = graph.op("MatMul", u, _weight(graph, core, "input"))
    *parts, gate = graph.several("Split", (product,), 4, axis=1, num_outputs=4)
    shape = graph.constant([-1, heads, size // heads], np.int64)
    query, key, value = (graph.op("Reshape", _silu(graph, part), shape) for part in parts)
    query, key = (_divide_by_norm(graph, part, "ReduceSum") for part in (query, key))
    rates = graph.op("Gemm", u, _weight(graph, core, "rates"), _weight(graph, core, "bias"))
    decay, strength = graph.several("Split", (rates,), 2, axis=1, num_outputs=2)
    # exp(-softplus(x)) = sigmoid(-x).
    decay = graph.op(
        "Unsqueeze", graph.op("Sigmoid", graph.op("Neg", decay)), graph.constant([2, 3], np.int64)
    )
    strength = graph.op("Unsqueeze", graph.op("Sigmoid", strength), graph.constant([2], np.int64))
    state = graph.op("Mul", before["state"], decay)
    error = graph.op("Sub", value, graph.op("Einsum", state, key, equation="nhvk,nhk->nhv"))
    written = graph.op("Einsum", graph.op("Mul", error, strength), key, equation="nhv,nhk->nhvk")
    state = graph.op("Add", state, written, result=f"{after}.state")
    y = _divide_by_norm(graph, graph.op("Einsum", state, query, equation="nhvk,nhk->nhv"), "ReduceMean")
    y = graph.op("Reshape", y, graph.constant([-1, size], np.int64))
    y = graph.op("Mul", graph.op("Mul", y, _weight(graph, core, "scale")), _silu(graph, gate))
    return graph.op("Add", x, graph.op("MatMul", y, _weight(graph, core, "output")))


def _gtrxl(graph: Graph, core: Layer, x: str, before: dict[str, str], after: str) -> str:
    heads = core["heads"]
    size = core["size"]
    length = core["memory_length"]
    width = size // heads
    normed = _layer_norm(graph, core, "attention_norm", x)
    second = graph.constant([1], np.int64)
    axes = graph.constant([0, 0, heads, width], np.int64)
    window = graph.op("Concat", before["memory"], graph.op("Unsqueeze", normed, second), axis=1)
    new = graph.op(
        "Add", graph.op("Mul", graph.op("ReduceSum", normed, second), graph.constant(0)), graph.constant(1)
    )
    valid = graph.op("Concat", before["valid"], new, axis=1)
    begin = graph.constant([1], np.int64)
    end = graph.constant([length + 1], np.int64)
    graph.op("Slice", window, begin, end, second, result=f"{after}.memory")
    graph.op("Slice", valid, begin, end, second, result=f"{after}.valid")
    query, key, value = np.split(graph.value_of(f"{core['weights']}.attention"), 3, axis=1)
    asked = graph.op("MatMul", normed, graph.constant(query))
    asked = graph.op("Reshape", asked, graph.constant([-1, heads, width], np.int64))
    keys, values = (
        graph.op("Reshape", graph.op("MatMul", window, graph.constant(part)), axes) for part in (key, value)
    )
    positions = sinusoids(length + 1, size)[::-1] @ graph.value_of(f"{core['weights']}.positions")
    positions = graph.constant(positions.reshape(length + 1, heads, width))
    content = graph.op("Add", asked, _weight(graph, core, "content_bias"))
    position = graph.op("Add", asked, _weight(graph, core, "position_bias"))
    scores = graph.op(
        "Add",
        graph.op("Einsum", content, keys, equation="nhk,nwhk->nhw"),
        graph.op("Einsum", position, positions, equation="nhk,whk->nhw"),
    )
    scores = graph.op("Div", scores, graph.constant(np.sqrt(width)))
    empty = graph.op("Unsqueeze", graph.op("Equal", valid, graph.constant(0)), second)
    shares = graph.op("Softmax", graph.op("Where", empty, graph.constant(-1e30), scores), axis=2)
    y = graph.op("Einsum", shares, values, equation="nhw,nwhk->nhk")
    y = graph.op("Reshape", y, graph.constant([-1, size], np.int64))
    x = _gate(graph, core, "attention_gate", x, _dense(graph, core, "attended", y))
    y = _dense(graph, core, "hidden", _layer_norm(graph, core, "dense_norm", x))
    return _gate(graph, core, "dense_gate", x, _dense(graph, core, "dense", graph.op("Relu", y)))


def _gate(graph: Graph, core: Layer, name: str, x: str, y: str) -> str:
    product = graph.op("MatMul", graph.op("Relu", y), _weight(graph, core, f"{name}.input"))
    yr, yz, yh = graph.several("Split", (product,), 3, axis=1, num_outputs=3)
    product = graph.op("MatMul", x, _weight(graph, core, f"{name}.state"))
    xr, xz = graph.several("Split", (product,), 2, axis=1, num_outputs=2)
    r = graph.op("Sigmoid", graph.op("Add", yr, xr))
    z = graph.op("Sub", graph.op("Add", yz, xz), _weight(graph, core, f"{name}.bias"))
    candidate = graph.op("MatMul", graph.op("Mul", r, x), _weight(graph, core, f"{name}.candidate"))
    h = graph.op("Tanh", graph.op("Add", yh, candidate))
    return _interpolate(graph, graph.op("Sigmoid", z), h, x)


def _weight(graph: Graph, core: Layer, name: str) -> str:
    return graph.param(f"{core['weights']}.{name}")


def _dense(graph: Graph, core: Layer, name: str, x: str) -> str:
    return graph.op("Gemm", x, _weight(graph, core, f"{name}_kernel"), _weight(graph, core, f"{name}_bias"))


def _silu(graph: Graph, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def _layer_norm(graph: Graph, core: Layer, name: str, x: str) -> str:
    layer = {"op": "layer_norm", "weights": f"{core['weights']}.{name}", "axes": 1, "epsilon": 1e-6}
    return graph.run([layer], x)


def _divide_by_norm(graph: Graph, x: str, reduction: str) -> str:
    """x divided by the root of the sum or mean of its squares over the last of three dimensions."""
    square = graph.op(reduction, graph.op("Mul", x, x), graph.constant([2], np.int64))
    return graph.op("Div", x, graph.op("Sqrt", graph.op("Add", square, graph.constant(EPSILON))))


def _times(graph: Graph, a: np.ndarray, x: tuple[str, str]) -> tuple[str, str]:
    """Complex products with constants."""
    real = graph.constant(a.real)
    imaginary = graph.constant(a.imag)
    product = lambda c, x: graph.op("Mul", c, x)  # noqa: E731
    return (
        graph.op("Sub", product(real, x[0]), product(imaginary, x[1])),
        graph.op("Add", product(real, x[1]), product(imaginary, x[0])),
    )


def _interpolate(graph: Graph, z: str, x: str, y: str, result: str = "") -> str:
    """z x + (1 - z) y."""
    rest = graph.op("Mul", graph.op("Sub", graph.constant(1), z), y)
    return graph.op("Add", graph.op("Mul", z, x), rest, result=result)


CORES: dict[str, Callable[[Graph, Layer, str, dict[str, str], str], str]] = {
    "lstm": _lstm,
    "gru": _gru,
    "mingru": _mingru,
    "lru": _lru,
    "s5": _s5,
    "gated_delta": _gated_delta,
    "gtrxl": _gtrxl,
    "none": lambda graph, core, x, before, after: x,
}
