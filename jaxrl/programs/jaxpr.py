"""Measures of a traced program, before it is compiled: FLOPs of matrix products, and the largest arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Var

from jaxrl.config import text


@dataclass(frozen=True)
class LargeArray:
    """An array that an operation makes: its type, its bytes, the operation, and the line of source code."""

    type: str
    bytes: int
    operation: str
    line: str

    def __str__(self) -> str:
        origin = ", ".join(filter(None, (self.operation, self.line)))
        return f"{self.type} of {text.size(self.bytes)} ({origin})"


def matmul_flops(jaxpr: Any, platform: str) -> float:
    """Floating-point operations of matrix products and convolutions, on one device of a platform.

    A scan counts once per step, a kernel once per cell of its grid, a loop of unknown length once, and of
    several branches the most expensive counts.
    """
    total = 0.0
    for equation, inner in _equations(jaxpr, platform):
        name = equation.primitive.name
        if name == "dot_general":
            total += _dot_flops(equation)
        elif name == "conv_general_dilated":
            total += _conv_flops(equation)
        elif name == "cond":
            total += max(matmul_flops(part, platform) for part in inner)
        else:
            total += _turns(equation) * sum(matmul_flops(part, platform) for part in inner)
    return total


def largest_arrays(jaxpr: Any, platform: str, count: int) -> list[LargeArray]:
    """The largest arrays that operations inside the program make, on one device, without padding.

    The compiler may never store some of them. Of several of one type, the first is named.
    """
    found: dict[str, LargeArray] = {}

    def visit(jaxpr: Any, outermost: bool) -> None:
        for equation, inner in _equations(jaxpr, platform):
            for part in inner:
                # Outside shard_map, arrays span all devices.
                visit(part, outermost and equation.primitive.name != "shard_map")
            for variable in () if inner or outermost else equation.outvars:
                array = _array(variable.aval, equation)
                found.setdefault(array.type, array)

    visit(jaxpr, True)
    return sorted(found.values(), key=lambda array: -array.bytes)[:count]


def _equations(jaxpr: Any, platform: str) -> Iterator[tuple[Any, list[Any]]]:
    """(equation, the programs inside it); of branches by platform, only the one that is taken."""
    taken: dict[Any, int] = {}  # by the variable that holds the number of the branch
    for equation in (jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr).eqns:
        name = equation.primitive.name
        inner = list(_inner(equation))
        known = [taken[x] for x in equation.invars if isinstance(x, Var) and x in taken]
        if name == "platform_index":
            platforms = equation.params["platforms"]
            # Branches name the maker of a GPU.
            own = {"cuda"} if platform == "gpu" else {platform}
            taken[equation.outvars[0]] = next(
                (i for i, names in enumerate(platforms) if names is None or own & set(names)), 0
            )
        elif name == "cond" and known:
            inner = [inner[known[0]]]
        elif known:  # The number of the branch is clamped and converted on the way.
            taken[equation.outvars[0]] = known[0]
        yield equation, inner


def _turns(equation: Any) -> int:
    name = equation.primitive.name
    params = equation.params
    if name == "pallas_call":
        return math.prod(params["grid_mapping"].grid)
    return params["length"] if name == "scan" else 1


def _inner(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, (Jaxpr, ClosedJaxpr)):
                yield part


def _array(aval: Any, equation: Any) -> LargeArray:
    size = math.prod(getattr(aval, "shape", ()))
    dtype = getattr(aval, "dtype", None)
    numeric = dtype is not None and not jnp.issubdtype(dtype, jax.dtypes.extended)
    frame = equation.source_info.traceback
    return LargeArray(
        aval.str_short(short_dtypes=True),
        size * (dtype.itemsize if numeric and dtype is not None else 8),
        equation.primitive.name,
        _line(frame),
    )


def _line(traceback: Any) -> str:
    """The innermost line of this repository's or the user's code."""
    for frame in traceback.frames if traceback is not None else ():
        if "site-packages" not in frame.file_name:
            short = "/".join(frame.file_name.split("/")[-3:])
            return f"{short}:{frame.line_num}"
    return ""


def _dot_flops(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    depth = math.prod(shape[axis] for axis in contracted)
    return 2.0 * depth * math.prod(equation.outvars[0].aval.shape)


def _conv_flops(equation: Any) -> float:
    """Products with padding, and with the holes that a stride leaves in a gradient, are not counted."""
    params = equation.params
    image, kernel = (x.aval.shape for x in equation.invars)
    result = equation.outvars[0].aval.shape
    image_axes, kernel_axes, result_axes = params["dimension_numbers"]
    pairs = 2.0 * kernel[kernel_axes[1]] * math.prod(result[axis] for axis in result_axes[:2])
    for i, (before, _) in enumerate(params["padding"]):
        hole = params["lhs_dilation"][i]
        tap = np.arange(kernel[kernel_axes[2 + i]]) * params["rhs_dilation"][i]
        first = np.arange(result[result_axes[2 + i]]) * params["window_strides"][i] - before
        at = first[:, None] + tap
        pairs *= np.count_nonzero((at >= 0) & (at < image[image_axes[2 + i]] * hole) & (at % hole == 0))
    return float(pairs)
