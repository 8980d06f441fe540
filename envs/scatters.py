"""Scatters of small arrays written as selections, for GPUs.

XLA makes a kernel of each scatter there, and mostly another that copies its operand. Selections become part
of the kernels around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

# An operand of more elements is worth a kernel that writes a few of them; each row of indices is a selection
# over all of the operand.
_MOST_ELEMENTS = 1024
_MOST_ROWS = 16
_COMBINED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "scatter": lambda before, update: update,
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
    "scatter-mul": lax.mul,
    "scatter-min": lax.min,
    "scatter-max": lax.max,
}


def without_scatters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` of trees of arrays with its small scatters written as selections.

    Values are the same, also if updates are out of bounds. Several updates of one element are applied in the
    order of their indices, as XLA does on CPUs.
    """

    def rewritten(*arguments: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shape), _evaluate(traced, *jax.tree.leaves(arguments)))

    return rewritten


def read(values: Mapping[Var, jax.Array], x: Any) -> Any:
    """The value of a variable, or of a literal, of a traced function."""
    return x.val if isinstance(x, Literal) else values[x]


def apply(
    equation: JaxprEqn, operands: Sequence[Any], rewrite: Callable[[Any], Any] = lambda x: x
) -> list[Any]:
    """The results of an operation of a traced function, with its parameters rewritten."""
    primitive = equation.primitive
    params = {name: rewrite(value) for name, value in equation.params.items()}
    found = primitive.bind(*operands, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def _evaluate(traced: ClosedJaxpr, *arguments: jax.Array) -> list[jax.Array]:
    jaxpr = traced.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *arguments], strict=True))
    for equation in jaxpr.eqns:
        operands = [read(values, x) for x in equation.invars]
        combined = _COMBINED.get(equation.primitive.name)
        if combined is not None and _is_small(equation):
            arrays = map(jnp.asarray, operands, [x.aval.dtype for x in equation.invars])
            results = [_select(combined, *arrays, **equation.params)]
        else:
            results = apply(equation, operands, _rewrite)
        values |= zip(equation.outvars, results, strict=True)
    return [read(values, x) for x in jaxpr.outvars]


def _rewrite(value: Any) -> Any:
    """A parameter of an operation, with the functions that it calls rewritten."""
    if type(value) is tuple:
        return tuple(map(_rewrite, value))
    if not isinstance(value, ClosedJaxpr):
        return value
    return jax.make_jaxpr(lambda *x: _evaluate(value, *x))(*value.in_avals)


def _is_small(equation: JaxprEqn) -> bool:
    avals: list[Any] = [x.aval for x in equation.invars]
    operand, indices, _ = avals
    # `x.at[i].apply(function)` is a scatter too.
    applies = equation.primitive.name == "scatter" and equation.params["update_jaxpr"] is not None
    opaque = jnp.issubdtype(operand.dtype, jax.dtypes.extended)
    rows = math.prod(indices.shape[:-1])
    return operand.size <= _MOST_ELEMENTS and rows <= _MOST_ROWS and not opaque and not applies


def _select(
    combined: Callable[[jax.Array, jax.Array], jax.Array],
    operand: jax.Array,
    indices: jax.Array,
    updates: jax.Array,
    *,
    dimension_numbers: lax.ScatterDimensionNumbers,
    mode: Any,
    **_: Any,
) -> jax.Array:
    """The result of a scatter: for each row of indices, a selection of the elements in its window."""
    how = dimension_numbers
    clips = mode == lax.GatherScatterMode.CLIP
    single = (*how.inserted_window_dims, *how.operand_batching_dims)
    windowed = [axis for axis in range(operand.ndim) if axis not in single]
    sizes = [1] * operand.ndim
    for axis, of_updates in zip(windowed, how.update_window_dims, strict=True):
        sizes[axis] = updates.shape[of_updates]
    by_row = [axis for axis in range(updates.ndim) if axis not in how.update_window_dims]
    updates = lax.transpose(updates, (*by_row, *how.update_window_dims))
    indices = _as_int32(indices)
    result = operand
    for row in np.ndindex(*indices.shape[:-1]):
        start: list[Any] = [0] * operand.ndim
        for k, axis in enumerate(how.scatter_dims_to_operand_dims):
            start[axis] = _element(indices, (*row, k)).reshape(())
            if clips:
                start[axis] = lax.clamp(0, start[axis], operand.shape[axis] - sizes[axis])
        batched = zip(how.operand_batching_dims, how.scatter_indices_batching_dims, strict=True)
        for axis, of_indices in batched:
            start[axis] = row[of_indices]
        update = _place(_element(updates, row).reshape(sizes), start, operand.shape)
        after = combined(result, lax.broadcast_in_dim(update, operand.shape, range(operand.ndim)))
        covered = _covered(start, sizes, operand.shape)
        result = lax.select(jnp.broadcast_to(covered, operand.shape), after, result)
    return result


def _as_int32(indices: jax.Array) -> jax.Array:
    """Indices that are as far out of bounds as they were; one of more than 31 bits stays so."""
    of, to = np.iinfo(indices.dtype), np.iinfo(np.int32)
    if of.max > to.max:
        indices = jnp.clip(indices, max(of.min, to.min), to.max)
    return indices.astype(jnp.int32)


def _element(x: jax.Array, at: tuple[int, ...]) -> jax.Array:
    """x[at] with dimensions of one element in front: fewer operations than indexing."""
    return lax.slice(x, (*at, *[0] * (x.ndim - len(at))), (*(i + 1 for i in at), *x.shape[len(at) :]))


def _covered(start: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> jax.Array:
    """bool, broadcastable to `shape`: the elements in a window, which counts only if all of it is inside.

    One comparison with the numbers of elements, which are a constant: XLA computes comparisons of an iota, or
    along each axis, in separate kernels.
    """
    inside: Any = True
    place: Any = 0  # of the window, along the axes on which it is one element
    covered: Any = True
    for axis, (first, size, length) in enumerate(zip(start, sizes, shape, strict=True)):
        if not isinstance(first, int):
            inside &= first.astype(jnp.uint32) <= length - size
        if size == 1:
            place = place * length + first
        elif size < length:
            along = [length if i == axis else 1 for i in range(len(shape))]
            index = np.arange(length, dtype=np.int32).reshape(along)
            covered &= (index >= first) & (index < first + size)
    places = [length if size == 1 else 1 for length, size in zip(shape, sizes, strict=True)]
    number = np.arange(math.prod(places), dtype=np.int32).reshape(places)
    return covered & (number == lax.select(jnp.asarray(inside), jnp.int32(place), jnp.int32(-1)))


def _place(update: jax.Array, start: Sequence[Any], shape: Sequence[int]) -> jax.Array:
    """An array that has `update` at `start`; along axes of one element, everywhere."""
    more = [length - size if size > 1 else 0 for size, length in zip(update.shape, shape, strict=True)]
    if not any(more):
        return update
    padded = lax.pad(update, jnp.zeros((), update.dtype), [(n, n, 0) for n in more])
    offsets = [n - first if n else 0 for n, first in zip(more, start, strict=True)]
    return lax.dynamic_slice(padded, offsets, [size + n for size, n in zip(update.shape, more, strict=True)])
