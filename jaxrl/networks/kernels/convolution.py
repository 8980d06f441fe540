"""2-D convolution and max pooling that are fast inside `lax.scan` on CPU, forwards and backwards.

XLA:CPU computes a plain convolution at 90% of a core's peak, or 15 to 50% with few channels. The gradients
that autodiff derives, and max pooling, take ten to a hundred times as long. On CPU, gradients are therefore
written as plain convolutions, and pooling as comparisons (measured in docs/performance.md). Elsewhere XLA's
own operations are used. The values are the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from jaxrl.types import Array

Pads = tuple[tuple[int, int], tuple[int, int]]
# The gradient with respect to a kernel is fast for 8 to 32 images, and slow for hundreds.
_IMAGES = 16
_LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x: Array, weight: Array, stride: int, padding: str) -> Array:
    """Convolution in the sense of neural networks: cross-correlation.

    Args:
      x: [N, H, W, C].
      weight: [k, k, C, F], of the dtype of `x`.
      padding: "VALID" or "SAME".

    Returns:
      float32[N, H', W', F], accumulated in float32. Elsewhere than on CPU sums have been rounded to the dtype
      of `x`: XLA can only differentiate a convolution of one dtype.
    """
    pads = _pads(x, weight.shape[0], stride, padding)
    return lax.platform_dependent(
        x,
        weight,
        cpu=lambda x, weight: _convolve_on_cpu(x, weight, stride, pads),
        default=lambda x, weight: _native(x, weight, stride, pads, x.dtype).astype(jnp.float32),
    )


def _pads(x: Array, size: int, stride: int, padding: str) -> Pads:
    above, beside = lax.padtype_to_pads(x.shape[1:3], (size, size), (stride, stride), padding)
    return above, beside


def _native(
    x: Array, weight: Array, stride: int | tuple[int, int], pads: Pads, dtype: Any = jnp.float32
) -> Array:
    strides = (stride, stride) if isinstance(stride, int) else stride
    return lax.conv_general_dilated(
        x, weight, strides, pads, dimension_numbers=_LAYOUT, preferred_element_type=dtype
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve_on_cpu(x: Array, weight: Array, stride: int, pads: Pads) -> Array:
    return _forward(x, weight, stride, pads)


def _vjp_forward(x: Array, weight: Array, stride: int, pads: Pads) -> tuple[Array, tuple[Array, Array]]:
    return _forward(x, weight, stride, pads), (x, weight)


def _vjp_backward(
    stride: int, pads: Pads, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    x, weight = saved
    gradient = gradient.astype(x.dtype)
    dweight = _weight_gradient(x, gradient, weight.shape[0], stride, pads).astype(weight.dtype)
    return _input_gradient(x, weight, gradient, stride, pads).astype(x.dtype), dweight


_convolve_on_cpu.defvjp(_vjp_forward, _vjp_backward)


def _forward(x: Array, weight: Array, stride: int, pads: Pads) -> Array:
    """XLA's convolution, in float32; with few channels several neighbouring columns of outputs at a time.

    A product of few columns is slow, so `across` neighbouring outputs are computed as channels of one wider
    kernel, which holds `across` shifted copies of the weights.
    """
    size, _, channels, features = weight.shape
    across = 1 if stride > 1 or channels >= 32 else (64 if channels % 4 else 32) // features
    if across <= 1:
        return _native(x, weight, stride, pads)
    above, (left, right) = pads
    width = x.shape[2] + left + right - size + 1
    blocks = -(-width // across)
    shifted = [jnp.pad(weight, ((0, 0), (j, across - 1 - j), (0, 0), (0, 0))) for j in range(across)]
    wide = jnp.concatenate(shifted, axis=-1)  # [k, k + across - 1, C, across * F]
    y = _native(x, wide, (1, across), (above, (left, right + blocks * across - width)))
    return y.reshape(*y.shape[:2], blocks * across, features)[:, :, :width]


def _input_gradient(x: Array, weight: Array, gradient: Array, stride: int, pads: Pads) -> Array:
    """The gradient convolved with the mirrored kernel: Dumoulin and Visin 2016, section 4."""
    if stride > 1:
        return _input_gradient_by_offset(x, weight, gradient, stride, pads)
    size = weight.shape[0]
    above, beside = (
        (size - 1 - before, length + before - outputs)
        for (before, _), length, outputs in zip(pads, x.shape[1:3], gradient.shape[1:3], strict=True)
    )
    return _forward(gradient, weight[::-1, ::-1].swapaxes(2, 3), 1, (above, beside))


def _input_gradient_by_offset(x: Array, weight: Array, gradient: Array, stride: int, pads: Pads) -> Array:
    """One small mirrored kernel for each of the stride^2 positions of an input relative to the stride."""
    size, _, channels, features = weight.shape
    taps = -(-size // stride)  # that reach one input, along one dimension
    fill = taps * stride - size
    split = jnp.pad(weight, ((0, fill), (0, fill), (0, 0), (0, 0)))
    split = split.reshape(taps, stride, taps, stride, channels, features)[::-1, :, ::-1]
    mirrored = split.transpose(0, 2, 5, 1, 3, 4).reshape(taps, taps, features, stride * stride * channels)
    edge = (taps - 1, taps - 1)
    dx = _native(gradient, mirrored, 1, (edge, edge))
    n, height, width = dx.shape[:3]
    dx = dx.reshape(n, height, width, stride, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    dx = dx.reshape(n, height * stride, width * stride, channels)
    # dx starts with the padding; inputs at the end that no window reaches have no gradient.
    crop = [
        (-before, length + before - found, 0)
        for (before, _), length, found in zip(pads, x.shape[1:3], dx.shape[1:3], strict=True)
    ]
    return lax.pad(dx, jnp.zeros((), dx.dtype), ((0, 0, 0), *crop, (0, 0, 0)))


def _weight_gradient(x: Array, gradient: Array, size: int, stride: int, pads: Pads) -> Array:
    """float32[k, k, C, F]: summed over groups of `_IMAGES` images."""
    n = x.shape[0]
    whole = n - n % _IMAGES if n > _IMAGES else 0
    part = partial(_weight_gradient_of_part, size=size, stride=stride, pads=pads)
    total = jnp.zeros((size, size, x.shape[-1], gradient.shape[-1]), jnp.float32)
    if whole:
        parts = [leaf[:whole].reshape(-1, _IMAGES, *leaf.shape[1:]) for leaf in (x, gradient)]
        total, _ = lax.scan(lambda total, xs: (total + part(*xs), None), total, tuple(parts))
    return total + part(x[whole:], gradient[whole:]) if whole < n else total


def _weight_gradient_of_part(x: Array, gradient: Array, size: int, stride: int, pads: Pads) -> Array:
    """Inputs convolved with the gradient, with the batch and channel dimensions exchanged."""
    above, beside = (
        (before, (outputs - 1) * stride + size - length - before)
        for (before, _), length, outputs in zip(pads, x.shape[1:3], gradient.shape[1:3], strict=True)
    )
    # The barrier keeps XLA from merging the transpositions into the convolution, which would be slow.
    images, kernel = lax.optimization_barrier((x.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3)))
    dweight = lax.conv_general_dilated(
        images,
        kernel,
        (1, 1),
        (above, beside),
        rhs_dilation=(stride, stride),
        dimension_numbers=_LAYOUT,
        preferred_element_type=jnp.float32,
    )
    return dweight.transpose(1, 2, 0, 3)


class _Pooling(NamedTuple):
    """SAME max pooling along one axis."""

    axis: int
    length: int  # of the input
    window: int
    stride: int

    @property
    def outputs(self) -> int:
        return -(-self.length // self.stride)

    @property
    def before(self) -> int:
        """Rows of padding in front."""
        ((before, _),) = lax.padtype_to_pads((self.length,), (self.window,), (self.stride,), "SAME")
        return before


def max_pool(x: Array, window: int, stride: int) -> Array:
    """SAME max pooling over the two dimensions before the last: [..., H, W, C] to [..., H', W', C].

    The gradient goes to the first of equal maxima.
    """
    flat = x.reshape(-1, *x.shape[-3:])
    rows, columns = (_Pooling(axis, flat.shape[axis], window, stride) for axis in (1, 2))
    pooled = lax.platform_dependent(
        flat,
        cpu=lambda x: _pool(_pool(x, columns), rows),
        default=lambda x: nn.max_pool(x, (window, window), (stride, stride), "SAME"),
    )
    return pooled.reshape(*x.shape[:-3], *pooled.shape[1:])


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _pool(x: Array, how: _Pooling) -> Array:
    return _pool_forward(x, how)[0]


def _pool_forward(x: Array, how: _Pooling) -> tuple[Array, Array]:
    last = (how.outputs - 1) * how.stride + 1
    pads = [(0, 0, 0)] * x.ndim
    pads[how.axis] = (how.before, last - 1 + how.window - how.length - how.before, 0)
    padded = lax.pad(x, jnp.array(-jnp.inf, x.dtype), pads)
    best = lax.slice_in_dim(padded, 0, last, how.stride, how.axis)
    chosen = jnp.zeros(best.shape, jnp.int8)
    for k in range(1, how.window):
        candidate = lax.slice_in_dim(padded, k, k + last, how.stride, how.axis)
        chosen = jnp.where(candidate > best, jnp.int8(k), chosen)
        best = jnp.maximum(best, candidate)
    return best, chosen


def _pool_backward(how: _Pooling, chosen: Array, gradient: Array) -> tuple[Array]:
    axis = how.axis
    extra = (how.window - 1) // how.stride
    shape = list(gradient.shape)
    shape[axis] += extra
    planes = []  # inputs 0, stride, 2 * stride, ...; then 1, stride + 1, ...
    for offset in range(how.stride):
        # Zeros where the stride is larger than the window, and no window reaches these inputs.
        plane = jnp.zeros(shape, gradient.dtype)
        for k in range(offset, how.window, how.stride):
            pads = [(0, 0)] * gradient.ndim
            pads[axis] = (k // how.stride, extra - k // how.stride)
            plane = plane + jnp.pad(jnp.where(chosen == k, gradient, 0), pads)
        planes.append(plane)
    shape[axis] = -1
    dx = jnp.stack(planes, axis + 1).reshape(shape)
    crop = [(0, 0, 0)] * dx.ndim
    crop[axis] = (-how.before, how.length + how.before - dx.shape[axis], 0)
    return (lax.pad(dx, jnp.zeros((), dx.dtype), crop),)


_pool.defvjp(_pool_forward, _pool_backward)
