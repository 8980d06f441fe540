"""The linear recurrence h_t = a_t h_{t-1} + b_t over time, in two forms with one derivative.

a_t and b_t do not depend on h_{t-1}: they come from matrix products over the whole sequence, and the
recurrence can be computed in parallel, as (a_1, b_1), (a_2, b_2) -> (a_1 a_2, a_2 b_1 + b_2) is associative
(Blelloch 1990; Martin and Cundy 2018). On CPU a loop over time is faster (docs/performance.md).

The numbers are real or complex. A complex array is a pair of float32 arrays, real and imaginary part, so
that checkpoints, exports and accelerators only see floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl.types import Array, PyTree

# (real,) or (real, imaginary).
Number = tuple[Array, ...]
Form = Callable[..., Number]


def times(x: Number, y: Number) -> Number:
    if len(x) == 1:
        return (x[0] * y[0],)
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _plus(x: Number, y: Number) -> Number:
    return tuple(a + b for a, b in zip(x, y, strict=True))


def _conjugate(x: Number) -> Number:
    return x if len(x) == 1 else (x[0], -x[1])


def _unless(reset: Array, x: Number) -> Number:
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    return tuple(jnp.where(reset[..., None], 0.0, part) for part in x)


def sequential(a: Number, b: Number, h: Number, reset: Array, reverse: bool = False) -> Number:
    """The recurrence step by step; from the last step to the first if `reverse`."""
    constant = len(a[0]) == 1

    def step(h: Number, xs: PyTree) -> tuple[Number, Number]:
        a_t, b_t, reset_t = xs
        a_t = _at(a, 0) if constant else a_t
        h = _plus(times(a_t, _unless(reset_t, h)), b_t)
        return h, h

    return lax.scan(step, h, (None if constant else a, b, reset), reverse=reverse)[1]


def parallel(a: Number, b: Number, h: Number, reset: Array, reverse: bool = False) -> Number:
    """The same in a logarithmic number of steps: a scan of segments; a reset forgets what is before it."""
    first = -1 if reverse else 0
    a = tuple(jnp.broadcast_to(part, b[0].shape) for part in a)
    given = times(_at(a, first), _unless(reset[first], h))
    b = tuple(part.at[first].add(x) for part, x in zip(b, given, strict=True))

    def join(before: PyTree, after: PyTree) -> PyTree:
        reset_1, a_1, b_1 = before
        reset_2, a_2, b_2 = after
        forget = reset_2[..., 0]
        return (
            reset_1 | reset_2,
            times(a_2, _unless(forget, a_1)),
            _plus(times(a_2, _unless(forget, b_1)), b_2),
        )

    return lax.associative_scan(join, (reset[..., None], a, b), reverse=reverse)[2]


def _at(x: Number, index: int) -> Number:
    return tuple(part[index] for part in x)


def by_platform(a: Number, b: Number, h: Number, reset: Array, reverse: bool = False) -> Number:
    """A single step without a loop; longer sequences in the form that is fastest on the platform."""
    if len(reset) == 1:
        return _plus(times(a, _unless(reset, tuple(x[None] for x in h))), b)
    forms = {"cpu": partial(sequential, reverse=reverse), "default": partial(parallel, reverse=reverse)}
    return lax.platform_dependent(a, b, h, reset, **forms)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def linear_recurrence(
    a_LNH: Number, b_LNH: Number, h_NH: Number, reset_LN: Array, form: Form = by_platform
) -> Number:
    """float32 h_LNH of h_t = a_t h_{t-1} + b_t, with h_{t-1} taken as zero at a reset.

    Args:
      a_LNH, b_LNH: float32; a [1, 1, H] where it is the same at all steps.
      h_NH: float32, before the first step.
      form: `sequential`, `parallel` or `by_platform`.
    """
    return form(a_LNH, b_LNH, h_NH, reset_LN)


def _vjp_forward(a: Number, b: Number, h: Number, reset: Array, form: Form) -> tuple[Number, PyTree]:
    y = form(a, b, h, reset)
    return y, (a, h, reset, y)


def _vjp_backward(form: Form, saved: PyTree, dy: Number) -> tuple[PyTree, ...]:
    """The same recurrence backwards in time, with the conjugate of the next step's a and its reset."""
    a, h, reset, y = saved
    following = a if len(a[0]) == 1 else tuple(jnp.concatenate([x[1:], x[:1]]) for x in a)
    ends = jnp.concatenate([reset[1:], jnp.ones_like(reset[:1])])
    d = form(_conjugate(following), dy, tuple(jnp.zeros_like(x) for x in h), ends, reverse=True)
    before = tuple(jnp.concatenate([x[None], parts[:-1]]) for x, parts in zip(h, y, strict=True))
    da = times(d, _conjugate(_unless(reset, before)))
    same = tuple(axis for axis, size in enumerate(a[0].shape) if size == 1)
    da = tuple(x.sum(axis=same, keepdims=True) for x in da)
    dh = _unless(reset[0], times(_conjugate(_at(a, 0)), _at(d, 0)))
    return da, d, dh, None


linear_recurrence.defvjp(_vjp_forward, _vjp_backward)
