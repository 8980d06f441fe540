"""Operations on arrays, the elements of encoders; each runs and describes itself.

A description is JSON values with which the weights run without this package; what each `op` computes is in
`jaxrl/inference/numpy_policy.py`. `Dense`, `Conv` and `LayerNorm` are operations as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, MultiDiscrete, Space
from jaxrl.envs.numbering import starts_of
from jaxrl.envs.pictures import channels_last, picture_order
from jaxrl.networks.kernels.convolution import max_pool
from jaxrl.networks.layers import activation
from jaxrl.types import Array

Layer = dict[str, Any]


class ArrayOperation(Protocol):
    """A function of one array [..., *X], with any number of leading dimensions."""

    def __call__(self, x: Array) -> Array: ...

    def describe(self) -> list[Layer]:
        """The computation, one layer after the other; a linen module must be bound."""
        ...


def run(operations: Sequence[ArrayOperation], x: Array) -> Array:
    """Applies one operation after the other."""
    for operation in operations:
        x = operation(x)
    return x


def describe(operations: Sequence[ArrayOperation]) -> list[Layer]:
    """The layers of all operations."""
    return [layer for operation in operations for layer in operation.describe()]


def description_of(part: Any, *arguments: Any) -> Any:
    """The description of an encoder, a core or a head; None for one that has none, such as a user's own."""
    return part.describe(*arguments) if hasattr(part, "describe") else None


def bounds_of(space: Box) -> Layer:
    """The bounds of actions as JSON values; None is no bound, for JSON has no infinity."""
    sides = {"low": space.low, "high": space.high}
    return {side: [x if math.isfinite(x) else None for x in bound] for side, bound in sides.items()}


def start_of(space: Space) -> Layer:
    """`start` of integers that the environment does not number from 0; what reads descriptions sees those."""
    return {"start": list(starts)} if (starts := starts_of(space)) else {}


@dataclass(frozen=True)
class Image:
    """Scales bytes to [0, 1] by the space's largest bound: 255 of pictures, 1 of planes, less of codes.

    Other dtypes (MinAtar's booleans) are only converted.
    """

    space: Space
    dtype: jnp.dtype

    def __call__(self, x: Array) -> Array:
        largest = self._largest() if x.dtype == jnp.uint8 else 1
        return x.astype(self.dtype) if largest == 1 else x.astype(self.dtype) / largest

    def describe(self) -> list[Layer]:
        assert isinstance(self.space, Box)
        largest = self._largest() if np.dtype(self.space.dtype) == np.uint8 else 1
        return [] if largest == 1 else [{"op": "divide", "by": largest}]

    def _largest(self) -> int:
        assert isinstance(self.space, Box)
        bound = max(self.space.high)
        return int(bound) if 1 <= bound < 255 else 255


@dataclass(frozen=True)
class ChannelsLast:
    """Pictures of a space, with channels first or last, as [..., height, width, channels].

    Here and not where observations arrive: so exported files and servers take the environment's own layout.
    """

    space: Space

    def __call__(self, x: Array) -> Array:
        assert isinstance(self.space, Box)
        return channels_last(x, self.space.shape)

    def describe(self) -> list[Layer]:
        assert isinstance(self.space, Box)
        order = picture_order(self.space.shape)
        return [] if order == (0, 1, 2) else [{"op": "channels_last", "order": list(order)}]


@dataclass(frozen=True)
class Vector:
    """[..., *O] to [..., F]: one-hot for discrete spaces, flattened for boxes."""

    space: Space
    dtype: jnp.dtype

    def __call__(self, x: Array) -> Array:
        if isinstance(self.space, Discrete):
            return jax.nn.one_hot(x, self.space.n, dtype=self.dtype)
        if isinstance(self.space, MultiDiscrete):
            columns = enumerate(self.space.nvec)
            return jnp.concatenate(
                [jax.nn.one_hot(x[..., i], n, dtype=self.dtype) for i, n in columns], axis=-1
            )
        return run(self._of_box(), x)

    def describe(self) -> list[Layer]:
        if isinstance(self.space, Discrete):
            return [{"op": "one_hot", "sizes": [self.space.n], **start_of(self.space)}]
        if isinstance(self.space, MultiDiscrete):
            return [{"op": "one_hot", "sizes": list(self.space.nvec), **start_of(self.space)}]
        return describe(self._of_box())

    def _of_box(self) -> tuple[ArrayOperation, ...]:
        assert isinstance(self.space, Box)
        return Image(self.space, self.dtype), Flatten(len(self.space.shape))


@dataclass(frozen=True)
class Flatten:
    """Joins the last `rank` dimensions to one."""

    rank: int

    def __call__(self, x: Array) -> Array:
        return x.reshape(*x.shape[: x.ndim - self.rank], -1)

    def describe(self) -> list[Layer]:
        return [{"op": "flatten"}]


@dataclass(frozen=True)
class Activation:
    """One of `ACTIVATIONS`, by name."""

    name: str

    def __call__(self, x: Array) -> Array:
        return activation(self.name)(x)

    def describe(self) -> list[Layer]:
        return [{"op": self.name}]


@dataclass(frozen=True)
class MaxPool:
    """Maxima over windows of [..., height, width, channels]."""

    window: int
    stride: int

    def __call__(self, x: Array) -> Array:
        return max_pool(x, window=self.window, stride=self.stride)

    def describe(self) -> list[Layer]:
        return [{"op": "max_pool", "window": self.window, "stride": self.stride}]


@dataclass(frozen=True)
class Residual:
    """The sum of an array and what operations make of it."""

    operations: tuple[ArrayOperation, ...]

    def __call__(self, x: Array) -> Array:
        return x + run(self.operations, x)

    def describe(self) -> list[Layer]:
        return [{"op": "residual", "layers": describe(self.operations)}]
