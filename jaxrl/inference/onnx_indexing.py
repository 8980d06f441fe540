"""Nodes of an ONNX graph that read parts of an array: windows, and elements by their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from jaxrl.inference.onnx_graph import Graph, Unsupported, Value, computed_in, element_type

Params = dict[str, Any]


def dynamic_slice(graph: Graph, params: Params, x: Value, *starts: Value) -> Value:
    """Adds a window, whose start must be known; jax moves it inside."""
    sizes = params["slice_sizes"]
    begin = []
    for start, size, n in zip(starts, sizes, x.shape, strict=True):
        if start.known is None:
            raise Unsupported("a slice that begins where an input says")
        begin.append(0 if size == n else min(max(int(start.known), 0), n - size))
    return _window(graph, x, begin, sizes)


def gather(graph: Graph, params: Params, x: Value, indices: Value) -> str | Value:
    """Adds the elements at indices, or the rows; or one window at a known place."""
    numbers = params["dimension_numbers"]
    sizes = params["slice_sizes"]
    axes = numbers.start_index_map
    if indices.known is not None and len(indices.shape) == 1:
        begin = dict(zip(axes, np.broadcast_to(indices.known, indices.shape).tolist(), strict=True))
        starts = [begin.get(i, 0) for i in range(len(x.shape))]
        return graph.squeezed(_window(graph, x, starts, sizes), numbers.collapsed_slice_dims)
    shared = numbers.operand_batching_dims
    rest = [i for i in range(len(x.shape)) if i not in (*shared, *axes)]
    if any(sizes[i] != 1 for i in axes) or any(sizes[i] != x.shape[i] for i in rest):
        raise Unsupported("windows at places that are computed")
    rows = [i for i in range(len(indices.shape) - 1) if i not in numbers.start_indices_batching_dims]
    order = [*numbers.start_indices_batching_dims, *rows]
    places = graph.op(
        "Cast", graph.full(graph.transposed(indices, [*order, len(order)])), to=element_type(np.int64)
    )
    # Also if the program promises indices in bounds: XLA clamps others, onnxruntime fails.
    last = np.array([x.shape[i] - 1 for i in axes], np.int64)
    bounded = graph.op("Min", graph.op("Max", places, np.int64(0)), last)
    table = graph.full(graph.transposed(x, [*shared, *axes, *rest]))
    found = graph.op("GatherND", table, bounded, batch_dims=len(shared))
    if params["mode"] == GatherScatterMode.FILL_OR_DROP:
        outside = graph.op("Cast", graph.op("Equal", places, bounded), to=element_type(np.int32))
        inside = graph.op("ReduceMin", outside, np.array([-1], np.int64), keepdims=0)
        inside = graph.op("Cast", inside, to=element_type(np.bool_))
        if rest:
            inside = graph.op("Unsqueeze", inside, np.arange(-len(rest), 0))
        found = graph.where(x.dtype, inside, found, _filling(params["fill_value"], x.dtype))
    return _ordered(graph, found, numbers, axes, order, rest)


def _ordered(
    graph: Graph, found: str, numbers: Any, axes: Sequence[int], order: Sequence[int], rest: Sequence[int]
) -> str:
    """Moves the dimensions of what GatherND found to where jax has them."""
    kept = [i for i in axes if i not in numbers.collapsed_slice_dims]
    rank = len(order) + len(rest) + len(kept)
    of_indices = iter(range(len(order)))
    of_array = iter(sorted([*rest, *kept]))
    now = [*(("index", i) for i in order), *(("array", i) for i in rest)]
    wanted: list[tuple[str, int]] = [
        ("array", next(of_array)) if i in numbers.offset_dims else ("index", next(of_indices))
        for i in range(rank)
    ]
    single = [i for i, (kind, axis) in enumerate(wanted) if kind == "array" and axis in kept]
    moved = [now.index(x) for i, x in enumerate(wanted) if i not in single]
    if moved != sorted(moved):
        found = graph.op("Transpose", found, perm=moved)
    return graph.op("Unsqueeze", found, np.array(single, np.int64)) if single else found


def _window(graph: Graph, x: Value, starts: Sequence[int], sizes: Sequence[Any]) -> Value:
    """Adds the part of an array that begins at known indices."""
    axes = [i for i, size in enumerate(sizes) if size != x.shape[i]]
    if not axes:
        return x
    begin = np.array([starts[i] for i in axes], np.int64)
    end = np.array([starts[i] + sizes[i] for i in axes], np.int64)
    if any(begin < 0) or any(n > x.shape[i] for i, n in zip(axes, end, strict=True)):
        raise Unsupported("a window over the edge of an array")
    name = graph.op("Slice", graph.full(x), begin, end, np.array(axes, np.int64))
    return Value(tuple(sizes), computed_in(x.dtype), tuple(sizes), name)


def _filling(value: Any, dtype: Any) -> np.ndarray:
    """The value that jax returns for an index out of bounds."""
    if value is None and jnp.issubdtype(dtype, jnp.inexact):
        value = np.nan
    if value is None and dtype != np.bool_:
        bounds = jnp.iinfo(dtype)
        value = bounds.min if jnp.issubdtype(dtype, jnp.signedinteger) else bounds.max
    return np.asarray(True if value is None else value, dtype)
