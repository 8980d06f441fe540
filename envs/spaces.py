"""Spaces of observations, actions and tasks. Sizes that no array of 32-bit numbers holds are refused."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import numbers
import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.names import LARGEST_INT32


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One integer action or observation, in the environment's own numbers in `[start, start + n)`."""

    n: int
    dtype: Any = np.int32
    start: int = 0
    shape: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_count("Discrete.n", self.n)
        _check_start("Discrete.start", self.start, self.n, self.dtype)

    @property
    def num_choices(self) -> int:
        """Length of the one-hot encoding, and of an action mask."""
        return self.n


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A vector of integers; component `i` is in `[start[i], start[i] + nvec[i])`; `start` is 0 by default."""

    nvec: tuple[int, ...]
    dtype: Any = np.int32
    start: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.nvec, tuple) or not self.nvec:
            raise ValueError(f"MultiDiscrete.nvec (={self.nvec!r}) must be a tuple of at least one integer")
        for n in self.nvec:
            check_count("MultiDiscrete.nvec", n)
        check_count("the sum of MultiDiscrete.nvec", sum(self.nvec))
        if not isinstance(self.start, tuple) or len(self.start) not in (0, len(self.nvec)):
            rule = f"must be a tuple of {len(self.nvec)} integers"
            raise ValueError(f"MultiDiscrete.start (={self.start!r}) {rule}")
        for first, n in zip(self.start, self.nvec, strict=False):
            _check_start("MultiDiscrete.start", first, n, self.dtype)
        if not any(self.start):  # Spaces that are the same are equal.
            object.__setattr__(self, "start", ())

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def num_choices(self) -> int:
        """Length of the components' one-hot encodings together, and of an action mask."""
        return sum(self.nvec)


def has_choice(space: Discrete | MultiDiscrete, mask: Any) -> Any:
    """bool[...] of JAX or numpy: does `mask`, bool[..., num_choices], allow something of every component?"""
    sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
    ends = itertools.accumulate(sizes)
    parts = (mask[..., end - size : end].any(-1) for size, end in zip(sizes, ends, strict=True))
    return functools.reduce(operator.and_, parts)


@dataclasses.dataclass(frozen=True)
class Box:
    """An array of `shape`; `low` and `high` are one tuple entry per element, flattened in C order."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: Any = np.float32

    def __post_init__(self) -> None:
        size = _checked_size(self.shape)
        if len(self.low) != size or len(self.high) != size:
            raise ValueError(
                f"Box.low and Box.high must have one entry for each of the {size} elements of the shape "
                f"{self.shape}, not {len(self.low)} and {len(self.high)}"
            )
        if not all(map(operator.le, self.low, self.high)):
            wrong = next(pair for pair in zip(self.low, self.high, strict=True) if not pair[0] <= pair[1])
            raise ValueError(f"Box.low (={wrong[0]}) must be at most Box.high (={wrong[1]})")

    @classmethod
    def of(cls, low: Any, high: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Box:
        """Builds a box from scalar or array bounds, broadcast to `shape`."""
        _checked_size(shape)

        def flat(name: str, x: Any) -> tuple[float, ...]:
            array = np.asarray(x, np.float64)
            try:
                return tuple(np.broadcast_to(array, shape).ravel().tolist())
            except ValueError as error:
                text = f"of shape {array.shape} must be one number, or one for each element of {shape}"
                raise ValueError(f"Box.{name} {text}") from error

        return cls(flat("low", low), flat("high", high), tuple(int(n) for n in shape), dtype)

    @property
    def bounded(self) -> bool:
        """True if every element has two bounds, see `FARTHEST`."""
        return all(abs(bound) < FARTHEST for bound in self.low + self.high)


@dataclasses.dataclass(frozen=True)
class Dict:
    """Named sub-spaces, as a sorted tuple of pairs so that a spec can be hashed."""

    spaces: tuple[tuple[str, Space], ...]

    def __post_init__(self) -> None:
        _check_parts("Dict", self.spaces)

    def __getitem__(self, name: str) -> Space:
        return dict(self.spaces)[name]


@dataclasses.dataclass(frozen=True)
class Mixed:
    """An action of several named parts as one vector, which policies choose for an environment's dict."""

    # In the order of their numbers; boxes are of floats.
    spaces: tuple[tuple[str, Discrete | MultiDiscrete | Box], ...]
    dtype: ClassVar[Any] = np.float32  # Whole numbers are exact in it up to `_LARGEST_PART`.

    def __post_init__(self) -> None:
        _check_parts("an action", self.spaces)
        for name, part in self.spaces:
            continuous = isinstance(part, Box) and np.issubdtype(part.dtype, np.floating)
            if not (continuous or isinstance(part, Discrete | MultiDiscrete)):
                rule = "parts may be Discrete, MultiDiscrete, or a Box of floats"
                raise ValueError(f"the action part {name!r} is {part}; {rule}")
            if isinstance(part, Discrete | MultiDiscrete):
                furthest = int(np.abs(bounds(part)).max())
                most = max(part.num_choices, furthest)
                check_count(f"the categories of the action part {name!r}", most, _LARGEST_PART)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(part.shape) for _, part in self.spaces)

    @property
    def shape(self) -> tuple[int]:
        return (sum(self.sizes),)

    def split(self, action: Any) -> list[Any]:
        """The numbers of each part, float32[..., n], of float32[..., sum(sizes)]; of JAX or numpy."""
        ends = itertools.accumulate(self.sizes)
        return [action[..., end - size : end] for size, end in zip(self.sizes, ends, strict=True)]

    def parts(self, action: Any) -> dict[str, Any]:
        """The parts by name, [..., *shape] of their own dtypes."""
        found = zip(self.spaces, self.split(action), strict=True)
        return {name: x.reshape((*x.shape[:-1], *part.shape)).astype(part.dtype) for (name, part), x in found}


Space = Discrete | MultiDiscrete | Box | Dict | Mixed

_LARGEST_PART = 2**24  # categories
# Larger bounds are as good as none: float32 no longer tells whole numbers apart. Some suites write 1e10.
FARTHEST = 2.0**24

# Elements of an array that is observed: more than any screen has. Bounds are kept for each of them.
LARGEST_BOX = 2**23


def check_count(name: str, n: Any, largest: int = LARGEST_INT32) -> None:
    """Raises ValueError unless `n` is an integer in [1, largest]."""
    whole = isinstance(n, numbers.Integral) and not isinstance(n, bool)
    if not whole or not 1 <= int(n) <= largest:
        raise ValueError(f"{name} (={n!r}) must be an integer in [1, {largest}]")


def check_stack(name: str, frames: Any, space: Space) -> None:
    """Raises ValueError unless observations of the space can be `frames` frames along their last axis."""
    check_count(name, frames)
    shape = space.shape if isinstance(space, Box) else ()
    if frames > 1 and (not shape or shape[-1] % frames):
        raise ValueError(f"{name} (={frames}) must divide the last axis of a Box, not {space}")


def _check_start(name: str, start: Any, n: int, dtype: Any) -> None:
    if not isinstance(start, numbers.Integral) or isinstance(start, bool):
        raise ValueError(f"{name} (={start!r}) must be an integer")
    held = np.iinfo(np.int32 if np.dtype(dtype) == bool else dtype)
    if start and not held.min <= int(start) <= held.max - n + 1:
        more = f"and the {n - 1} numbers after it must fit into {np.dtype(dtype)}"
        raise ValueError(f"{name} (={start}) {more}")


def _check_parts(what: str, spaces: tuple[tuple[str, Space], ...]) -> None:
    if isinstance(spaces, Mapping):
        raise ValueError(f"{what} must have its parts as pairs: tuple({{'name': space, ...}}.items())")
    if not spaces:
        raise ValueError(f"{what} must have parts: there is nothing to see or to choose otherwise")
    names = [name for name, _ in spaces]
    for twice in sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{what} has two parts called {twice!r}; rename one")


def _checked_size(shape: tuple[int, ...]) -> int:
    if not isinstance(shape, Sequence):
        raise ValueError(f"Box.shape (={shape!r}) must be a tuple of sizes, such as ({shape},)")
    if not all(isinstance(n, numbers.Integral) and n >= 1 for n in shape):
        raise ValueError(f"Box.shape (={shape}) must have positive sizes: there is nothing to see otherwise")
    size = math.prod(int(n) for n in shape)
    if size > LARGEST_BOX:
        raise ValueError(f"Box.shape (={shape}) must have at most {LARGEST_BOX} elements, not {size}")
    return size


def bounds(space: Discrete | MultiDiscrete | Box) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest element, float64 of the space's shape."""
    if isinstance(space, Box):
        low, high = (np.array(bound, np.float64).reshape(space.shape) for bound in (space.low, space.high))
        return low, high
    count = np.array(space.n if isinstance(space, Discrete) else space.nvec, np.float64)
    least = np.array(space.start or 0, np.float64)
    return least + np.zeros_like(count), least + count - 1


def drawn_bounds(space: Discrete | MultiDiscrete | Box) -> tuple[np.ndarray, np.ndarray]:
    """Finite bounds to sample elements from, float64 of the space's shape: its own up to `FARTHEST`.

    A float with a single bound is sampled from the unit beside it, one without any from [-1, 1].
    """
    low, high = bounds(space)
    if np.issubdtype(space.dtype, np.integer):
        limits = np.iinfo(space.dtype)
        return np.clip(low, limits.min, limits.max), np.clip(high, limits.min, limits.max)
    has_low, has_high = low > -FARTHEST, high < FARTHEST
    least = np.where(has_low, low, np.where(has_high, high - 1, -1))
    greatest = np.where(has_high, high, np.where(has_low, low + 1, 1))
    return least, greatest


def sample(space: Space, key: jax.Array) -> Any:
    """An element sampled uniformly within `drawn_bounds`; a dict for a `Dict`."""
    if isinstance(space, Mixed):
        drawn = sample(Dict(space.spaces), key).values()
        return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in drawn])
    if isinstance(space, Dict):
        keys = jax.random.split(key, len(space.spaces))
        return {name: sample(part, k) for (name, part), k in zip(space.spaces, keys, strict=True)}
    low, high = drawn_bounds(space)
    if np.issubdtype(space.dtype, np.integer):
        # JAX takes the number after the last one, and has no wider type for the one after the largest.
        wide = np.uint32 if np.dtype(space.dtype) == np.uint32 else np.int32
        end = np.minimum(high + 1, np.iinfo(wide).max).astype(wide)
        return jax.random.randint(key, space.shape, low.astype(wide), end, space.dtype)
    least, greatest = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
    number = jax.random.uniform(key, space.shape)
    return (least + number * (greatest - least)).astype(space.dtype)


def zeros(space: Space, leading: tuple[int, ...] = ()) -> Any:
    """Zeros of the space's shape and dtype, with `leading` dimensions; a dict for a `Dict`."""
    if isinstance(space, Dict):
        return {name: zeros(part, leading) for name, part in space.spaces}
    return jax.numpy.zeros((*leading, *space.shape), space.dtype)
