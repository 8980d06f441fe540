"""Nodes of an ONNX graph for the primitives of jax."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.lax import RoundingMethod

from jaxrl.inference.onnx_graph import (
    Graph,
    Params,
    Unsupported,
    Value,
    computed_in,
    dynamic_slice,
    element_type,
    gather,
)


def _node(kind: str, **attributes: Any) -> Callable[..., str]:
    return lambda graph, params, *x: graph.op(kind, *x, **attributes)


def _logical(kind: str, graph: Graph, params: Params, *x: str) -> str:
    """Of truth values, or bit by bit."""
    return graph.op(kind if params["dtype"] == np.bool_ else f"Bitwise{kind}", *x)


def _cast(graph: Graph, x: str, dtype: Any) -> str:
    return graph.op("Cast", x, to=element_type(computed_in(dtype)))


def _select(graph: Graph, params: Params, which: str, *cases: str) -> str:
    if len(cases) != 2:
        raise Unsupported(f"a choice of {len(cases)}")
    return graph.where(params["dtype"], which, cases[1], cases[0])


def _integer_power(graph: Graph, params: Params, x: str) -> str:
    if params["y"] == 2:
        return graph.op("Mul", x, x)
    return graph.op("Pow", x, np.float32(params["y"]))


def _round(graph: Graph, params: Params, x: str) -> str:
    if params["rounding_method"] != RoundingMethod.TO_NEAREST_EVEN:
        raise Unsupported("rounding of halves away from zero")
    return graph.op("Round", x)


# On names of values in stored shapes, which broadcast; `dtype` is the last argument's.
ELEMENTWISE: dict[str, Callable[..., str]] = {
    **{
        name: _node(kind)
        for name, kind in {
            "add": "Add", "add_any": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow",
            "max": "Max", "min": "Min", "neg": "Neg", "abs": "Abs", "sign": "Sign", "floor": "Floor",
            "ceil": "Ceil", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos",
            "tan": "Tan", "tanh": "Tanh", "sinh": "Sinh", "cosh": "Cosh", "asin": "Asin", "acos": "Acos",
            "atan": "Atan", "logistic": "Sigmoid", "erf": "Erf", "eq": "Equal", "lt": "Less",
            "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "stop_gradient": "Identity",
            "copy": "Identity", "copy_p": "Identity",
        }.items()
    },
    "round": _round,
    "rem": _node("Mod", fmod=1),
    **{kind.lower(): partial(_logical, kind) for kind in ("And", "Or", "Xor", "Not")},
    "ne": lambda graph, params, x, y: graph.op("Not", graph.op("Equal", x, y)),
    "square": lambda graph, params, x: graph.op("Mul", x, x),
    "rsqrt": lambda graph, params, x: graph.op("Reciprocal", graph.op("Sqrt", x)),
    "exp2": lambda graph, params, x: graph.op("Pow", np.float32(2), x),
    "expm1": lambda graph, params, x: graph.op("Sub", graph.op("Exp", x), np.float32(1)),
    "log1p": lambda graph, params, x: graph.op("Log", graph.op("Add", x, np.float32(1))),
    "clamp": lambda graph, params, low, x, high: graph.op("Min", graph.op("Max", x, low), high),
    "integer_pow": _integer_power,
    "is_finite": lambda graph, params, x: graph.op(
        "Not", graph.op("Or", graph.op("IsNaN", x), graph.op("IsInf", x))
    ),
    "select_n": _select,
    "convert_element_type": lambda graph, params, x: _cast(graph, x, params["new_dtype"]),
}  # fmt: skip


def joined(graph: Graph, name: str, given: Sequence[Value]) -> str | None:
    """Adds two operations as one, if runtimes are then quicker: a convolution with its bias, and relu."""
    for x, y in (given, given[::-1]) if len(given) == 2 else ():
        if x.known is not None or y.known is None:
            continue
        if name == "max" and x.dtype == np.float32 and not y.known.any() and y.known.size == 1:
            return graph.op("Relu", x.name)
        convolution = graph.convolutions.get(x.name)
        if name == "add" and convolution and y.stored == x.stored[-1:]:
            return convolution(graph.name_of(y))
    return None


def _reduce(kind: str, graph: Graph, params: Params, x: Value) -> Value:
    x = _stored_along(graph, x, params["axes"])
    name = graph.number(x)
    if x.dtype == np.bool_:
        name = _cast(graph, name, np.int32)
    axes = [i - len(x.shape) for i in params["axes"]]
    name = graph.op(kind, name, np.array(axes, np.int64), keepdims=0)
    if x.dtype == np.bool_:
        name = _cast(graph, name, np.bool_)
    shape, stored = (
        tuple(n for i, n in enumerate(sizes, -len(sizes)) if i not in axes) for sizes in (x.shape, x.stored)
    )
    return Value(shape, computed_in(x.dtype), stored, name)


def _stored_along(graph: Graph, x: Value, axes: Sequence[int]) -> Value:
    """A value that is stored in whole along some dimensions."""
    missing = len(x.shape) - len(x.stored)
    if all(i >= missing and x.stored[i - missing] == x.shape[i] for i in axes):
        return x
    return Value(x.shape, computed_in(x.dtype), x.shape, graph.full(x))


def _argument_of(kind: str, graph: Graph, params: Params, x: Value) -> str:
    (axis,) = params["axes"]
    return _cast(graph, graph.op(kind, graph.full(x), axis=axis, keepdims=0), params["index_dtype"])


def _stack(graph: Graph, params: Params, *x: Value) -> str:
    axis = np.array([params["axis"]], np.int64)
    return graph.op("Concat", *(graph.op("Unsqueeze", graph.full(y), axis) for y in x), axis=params["axis"])


def _split(graph: Graph, params: Params, x: Value) -> list[Value]:
    axis = params["axis"] - len(x.shape)
    x = _stored_along(graph, x, [params["axis"]])
    sizes = [int(n) for n in params["sizes"]]
    names = graph.several("Split", [graph.number(x), np.array(sizes, np.int64)], len(sizes), axis=axis)
    part = lambda shape, n: (*shape[:axis], n, *shape[len(shape) + axis + 1 :])  # noqa: E731
    return [
        Value(part(x.shape, n), computed_in(x.dtype), part(x.stored, n), name)
        for n, name in zip(sizes, names, strict=True)
    ]


def _unstack(graph: Graph, params: Params, x: Value) -> list[Value]:
    axis = params["axis"]
    parts = _split(graph, {"axis": axis, "sizes": [1] * x.shape[axis]}, x)
    return [graph.squeezed(part, [axis]) for part in parts]


def _slice(graph: Graph, params: Params, x: Value) -> str:
    steps = params["strides"] or [1] * len(x.shape)
    bounds = zip(params["start_indices"], params["limit_indices"], steps, x.shape, strict=True)
    # A bound may be the batch size, but not of a dimension that is taken whole.
    parts = [(a, b, step, i) for i, (a, b, step, n) in enumerate(bounds) if (a, b, step) != (0, n, 1)]
    return graph.op("Slice", graph.full(x), *np.array(parts, np.int64).reshape(-1, 4)[:, [0, 1, 3, 2]].T)


def _reverse(graph: Graph, params: Params, x: Value) -> str:
    axes = np.array(params["dimensions"], np.int64)
    last = np.full(len(axes), -1, np.int64)
    return graph.op("Slice", graph.full(x), last, np.full(len(axes), np.iinfo(np.int64).min), axes, last)


def _pad(graph: Graph, params: Params, x: Value, by: Value) -> str:
    config = np.array(params["padding_config"], np.int64)
    if (config < 0).any() or config[:, 2].any():
        raise Unsupported("padding between elements, or by less than nothing")
    return graph.op("Pad", graph.full(x), config[:, :2].T.reshape(-1), graph.full(by))


def _product(graph: Graph, params: Params, x: Value, y: Value) -> str | Value:
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    last = len(x.shape) - 1
    if not left_batch and len(y.shape) == 2 and (*left, *right) == (last, 0) and len(x.stored) > 1:
        x = _stored_along(graph, x, [last])
        name = graph.op("MatMul", graph.number(x), graph.full(y))
        columns = y.shape[1:]
        return Value(x.shape[:-1] + columns, computed_in(x.dtype), x.stored[:-1] + columns, name)
    letters = iter(string.ascii_letters)
    first = [next(letters) for _ in x.shape]
    second = [next(letters) for _ in y.shape]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        second[j] = first[i]
    rows = [first[i] for i in left_batch]
    summed = [first[i] for i in left]
    free = [c for c in first + second if c not in rows + summed]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(rows + free)}"
    return graph.op("Einsum", graph.full(x), graph.full(y), equation=equation)


def _convolution(graph: Graph, params: Params, x: Value, kernel: Value) -> str:
    """Adds it with the channels where ONNX has them; see also `joined`."""
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1 or any(n != 1 for n in params["lhs_dilation"]):
        raise Unsupported("a transposed convolution")
    inputs = [
        graph.full(graph.transposed(array, order))
        for array, order in ((x, numbers.lhs_spec), (kernel, numbers.rhs_spec))
    ]

    def add(*bias: str) -> str:
        y = graph.op(
            "Conv",
            *inputs,
            *bias,
            strides=list(params["window_strides"]),
            pads=np.array(params["padding"]).T.reshape(-1).tolist(),
            dilations=list(params["rhs_dilation"]),
            group=params["feature_group_count"],
        )
        return graph.op("Transpose", y, perm=np.argsort(numbers.out_spec).tolist())

    name = add()
    if numbers.out_spec[1] == len(x.shape) - 1:
        graph.convolutions[name] = add
    return name


def _pool(kind: str, graph: Graph, params: Params, x: Value) -> str:
    window, strides = params["window_dimensions"], params["window_strides"]
    padding = np.array(params["padding"])
    is_whole = [(n, k) == (1, 1) and not p.any() for n, k, p in zip(window, strides, padding, strict=True)]
    others = [i for i, whole in enumerate(is_whole) if whole]
    if len(others) < 2 or any(n != 1 for n in (*params["base_dilation"], *params["window_dilation"])):
        raise Unsupported("a window over rows or channels, or one with gaps")
    order = others[:2] + [i for i in range(len(window)) if i not in others[:2]]
    size = [window[i] for i in order[2:]]
    of_average: dict[str, Any] = {"count_include_pad": 1} if kind == "AveragePool" else {}
    y = graph.op(
        kind,
        graph.full(graph.transposed(x, order)),
        kernel_shape=size,
        strides=[strides[i] for i in order[2:]],
        pads=padding[order[2:]].T.reshape(-1).tolist(),
        **of_average,
    )
    y = graph.op("Mul", y, np.float32(np.prod(size))) if of_average else y
    return graph.op("Transpose", y, perm=np.argsort(order).tolist())


def _cumulative_sum(graph: Graph, params: Params, x: Value) -> str:
    axis = np.array(params["axis"], np.int64)
    return graph.op("CumSum", graph.full(x), axis, reverse=int(params["reverse"]))


# On values; a result that is a name alone is stored in its whole shape.
STRUCTURAL: dict[str, Callable[..., str | Value | list[Value]]] = {
    **{f"reduce_{kind.lower()}": partial(_reduce, f"Reduce{kind}") for kind in ("Sum", "Max", "Min", "Prod")},
    "reduce_or": partial(_reduce, "ReduceMax"),
    "reduce_and": partial(_reduce, "ReduceMin"),
    "argmax": partial(_argument_of, "ArgMax"),
    "argmin": partial(_argument_of, "ArgMin"),
    "concatenate": lambda graph, params, *x: graph.op(
        "Concat", *map(graph.full, x), axis=params["dimension"]
    ),
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "slice": _slice,
    "rev": _reverse,
    "pad": _pad,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "reduce_window_max": partial(_pool, "MaxPool"),
    "reduce_window_sum": partial(_pool, "AveragePool"),
    "cumsum": _cumulative_sum,
    "gather": gather,
    "dynamic_slice": dynamic_slice,
    "reshape": lambda graph, params, x: graph.reshaped(x, params["new_sizes"]),
}

# On one value: other views of what is stored, also of constants.
VIEWS: dict[str, Callable[[Graph, Params, Value], Value]] = {
    "broadcast_in_dim": lambda graph, params, x: graph.broadcast(
        x, params["shape"], params["broadcast_dimensions"]
    ),
    "squeeze": lambda graph, params, x: graph.squeezed(x, params["dimensions"]),
    "transpose": lambda graph, params, x: graph.transposed(x, params["permutation"]),
}
