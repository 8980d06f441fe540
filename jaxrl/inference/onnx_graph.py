"""An ONNX graph, made from a program of jax value by value, and its nodes that read parts of an array."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

Params = dict[str, Any]
Shape = tuple[Any, ...]  # of numbers, and of expressions of the batch size


class Unsupported(Exception):
    """A program has no form as a graph. The message names the reason in a few words."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """An array of the program.

    Attributes:
      stored: the shape of the node's result or constant: 1 if a broadcast has not been needed yet, and
        without the first dimensions if they are such.
      name: of the node's result or of the constant; "" for a constant without one.
      known: the array in the shape `stored`, of what does not depend on inputs.
    """

    shape: Shape
    dtype: Any
    stored: Shape
    name: str = ""
    known: np.ndarray | None = None


def constant(x: Any, name: str = "") -> Value:
    """A known array."""
    x = np.asarray(x)
    return Value(x.shape, x.dtype, x.shape, name, x)


def element_type(dtype: Any) -> int:
    """ONNX's number for a dtype."""
    import onnx

    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def computed_in(dtype: Any) -> np.dtype[Any]:
    """The dtype for calculations with `dtype`: onnxruntime has few operations for other integers."""
    if dtype in (jnp.float32, jnp.bool_, jnp.int32, jnp.int64):
        return np.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise Unsupported(f"an array of {dtype}")
    return np.dtype(np.int64 if dtype in (jnp.uint32, jnp.uint64) else np.int32)


class Graph:
    """Nodes and constants; a value goes by the name of the node that computes it.

    Args:
      batch: the batch size, a number or a symbol.
      rows: the name of an input whose only dimension is the batch.

    Attributes:
      nodes, constants: what has been added.
      convolutions: functions that add the same convolution with a bias, by the names of their results, whose
        channels are last.
    """

    def __init__(self, batch: Any, rows: str):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.convolutions: dict[str, Callable[[str], str]] = {}
        self._batch = batch
        self._rows = rows

    def op(self, kind: str, *inputs: Any, result: str = "", **attributes: Any) -> str:
        """Adds a node with one result, named automatically unless `result` names it; inputs may be arrays."""
        return self.several(kind, inputs, 1, result, **attributes)[0]

    def several(
        self, kind: str, inputs: Sequence[Any], count: int, result: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node with `count` results."""
        import onnx

        names = [result] if result else [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(count)]
        given = [x if isinstance(x, str) else self.name_of(constant(x)) for x in inputs]
        self.nodes.append(onnx.helper.make_node(kind, given, names, **attributes))
        return names

    def where(self, dtype: Any, which: str, x: Any, y: Any) -> str:
        """Adds the choice of `x` where `which` holds, of `y` elsewhere."""
        if dtype != np.bool_:
            return self.op("Where", which, x, y)
        # onnxruntime has no Where of truth values.
        numbers = [self.op("Cast", z, to=element_type(np.int32)) for z in (x, y)]
        return self.op("Cast", self.op("Where", which, *numbers), to=element_type(np.bool_))

    def name_of(self, x: Value) -> str:
        """The name of a value as it is stored; a constant becomes part of the graph."""
        if x.known is None:
            return x.name
        name = x.name or f"constant_{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(x.known, computed_in(x.dtype)).reshape(x.known.shape)
        return name

    def number(self, x: Value) -> str:
        """The name of a value as it is stored, in the dtype for calculations."""
        name = self.name_of(x)
        narrow = x.known is None and computed_in(x.dtype) != x.dtype
        return self.op("Cast", name, to=element_type(computed_in(x.dtype))) if narrow else name

    def full(self, x: Value) -> str:
        """The name of a value in its whole shape, in the dtype for calculations."""
        name = self.number(x)
        missing = len(x.shape) - len(x.stored)
        # Expand leaves a dimension unchanged if its target is 1.
        wanted = [1 if a == b else b for a, b in zip((1,) * missing + x.stored, x.shape, strict=True)]
        if any(n != 1 for n in wanted):
            return self.op("Expand", name, self._sizes(wanted))
        return self.op("Unsqueeze", name, np.arange(missing)) if missing else name

    def transposed(self, x: Value, order: Sequence[int]) -> Value:
        """With the dimensions in another order."""
        if list(order) == sorted(order):
            return x
        shape = tuple(x.shape[i] for i in order)
        if x.known is not None:
            known = x.known.reshape((1,) * (len(x.shape) - x.known.ndim) + x.known.shape).transpose(order)
            return dataclasses.replace(x, shape=shape, stored=known.shape, name="", known=known)
        name = self.op("Transpose", self.full(x), perm=list(order))
        return Value(shape, computed_in(x.dtype), shape, name)

    def broadcast(self, x: Value, shape: Shape, axes: Sequence[int]) -> Value:
        """With other dimensions between its own, which become `axes`; `full` repeats it."""
        axes = axes[len(axes) - len(x.stored) :]
        first = axes[0] if axes else len(shape)
        stored: list[Any] = [1] * (len(shape) - first)
        for i, size in zip(axes, x.stored, strict=True):
            stored[i - first] = size
        new = [i for i in range(len(stored)) if i + first not in axes]
        return self._viewed(x, shape, tuple(stored), "Unsqueeze", new)

    def squeezed(self, x: Value, axes: Sequence[int]) -> Value:
        """Without dimensions of 1."""
        missing = len(x.shape) - len(x.stored)
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        dropped = [i - missing for i in axes if i >= missing]
        stored = tuple(n for i, n in enumerate(x.stored) if i not in dropped)
        return self._viewed(x, shape, stored, "Squeeze", dropped)

    def _viewed(self, x: Value, shape: Shape, stored: Shape, kind: str, axes: Sequence[int]) -> Value:
        if x.known is not None:
            name = x.name if stored == x.stored else ""
            return Value(shape, x.dtype, stored, name, x.known.reshape(stored))
        name = self.op(kind, x.name, np.array(axes, np.int64)) if axes else x.name
        return Value(shape, x.dtype, stored, name)

    def reshaped(self, x: Value, shape: Shape) -> Value:
        """With as many elements in another shape."""
        first = next((i for i, n in enumerate(x.shape) if n != 1), 0)
        if x.shape[:first] + shape == x.shape:
            return self.squeezed(x, range(first))
        more = len(shape) - len(x.shape)
        if shape == (1,) * more + x.shape:
            return self.broadcast(x, shape, range(more, len(shape)))
        unknown = [n for n in shape if not isinstance(n, int)]
        if len(unknown) > 1:
            raise Unsupported(f"a reshape to {shape}")
        sizes = np.array([n if isinstance(n, int) else -1 for n in shape], np.int64)
        return Value(shape, computed_in(x.dtype), shape, self.op("Reshape", self.full(x), sizes))

    def keep_needed(self, results: Sequence[str]) -> None:
        """Drops the nodes and constants that no result depends on."""
        needed = set(results)
        kept = []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        self.nodes = kept[::-1]
        self.constants = {name: x for name, x in self.constants.items() if name in needed}

    def _sizes(self, shape: Sequence[Any]) -> Any:
        """A shape as an array: of numbers, or computed from an input's shape."""
        if all(isinstance(n, int) for n in shape):
            return np.array(shape, np.int64)
        rows = self.op("Shape", self._rows)
        parts = [np.array([n], np.int64) if isinstance(n, int) else self._multiple(n, rows) for n in shape]
        return self.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def _multiple(self, n: Any, rows: str) -> str:
        """A number of rows, or a multiple of it."""
        times, rest = divmod(n, self._batch)
        if not (isinstance(times, int) and isinstance(rest, int) and rest == 0):
            raise Unsupported(f"an array of {n} rows")
        return rows if times == 1 else self.op("Mul", rows, np.array([times], np.int64))


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
