"""Arrays of the spaces that a model's files describe: from a request's values, checked; and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.inference.serving.refusal import Refusal

_KINDS = ("box", "discrete", "multi_discrete")
_LARGEST = 2**23  # elements of an observation


@dataclasses.dataclass(frozen=True)
class ArraySpace:
    """One array of observations.

    Attributes:
      name: of the policy's input: `obs`, or `obs.KEY` if observations are dicts.
      path: the keys that lead to it.
      shape, dtype: without batch.
      choices: of integers, int64 of `shape`: how many values each has; None for others.
      start: the first of these values, int64 of `shape`.
    """

    name: str
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    choices: np.ndarray | None
    start: np.ndarray

    def read(self, given: Any) -> np.ndarray:
        """[*shape] or [B, *shape] of the space's dtype.

        Raises:
          Refusal: the shape, the type or a value does not fit.
        """
        shown = "obs" + "".join(f"[{key!r}]" for key in self.path)
        try:
            array = np.asarray(given)
        except (ValueError, OverflowError) as error:
            raise Refusal(400, f"`{shown}` must be an array of the shape {list(self.shape)}") from error
        if array.shape not in (self.shape, (*array.shape[:1], *self.shape)):
            batch = ", ".join(map(str, ("B", *self.shape)))
            wanted = f"it must be {list(self.shape)} or [{batch}]"
            raise Refusal(400, f"`{shown}` has the shape {list(array.shape)}, {wanted}")
        return self._cast(shown, array)

    def _cast(self, shown: str, array: np.ndarray) -> np.ndarray:
        integers = array.dtype.kind in "iu" and self.dtype.kind in "iu"
        if array.dtype.kind not in "biuf" or not (
            integers or np.can_cast(array.dtype, self.dtype, "same_kind")
        ):
            raise Refusal(400, f"`{shown}` is of {array.dtype.name}, it must be of {self.dtype.name}")
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(self.dtype)
        if self.dtype.kind == "f" and not np.isfinite(cast).all():
            raise Refusal(400, f"`{shown}` must be finite in {self.dtype.name}")
        if integers and (cast != array).any():
            raise Refusal(400, f"`{shown}` holds an integer that {self.dtype.name} does not hold")
        if self.choices is not None:
            last = self.start + self.choices - 1
            if ((cast < self.start) | (cast > last)).any():
                first = self.start.tolist() if self.start.any() else 0
                raise Refusal(400, f"`{shown}` must be from {first} to {last.tolist()}")
        return cast


class ObservationReader:
    """Reads observations, one or a batch."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        """Takes the `observation` of spaces.json; raises ValueError, KeyError or TypeError if it is none."""
        self.arrays = tuple(_arrays(space, "obs", ()))
        self._space = space

    def read(self, given: Any) -> tuple[bool, dict[str, np.ndarray]]:
        """(whether it is one observation, arrays [B, ...] by the names of inputs; B is 1 then).

        Raises:
          Refusal: it is none.
        """
        leaves = _leaves(given, self._space, "obs")
        found = {array.name: array.read(leaf) for array, leaf in zip(self.arrays, leaves, strict=True)}
        leading = {x.shape[: x.ndim - len(a.shape)] for a, x in zip(self.arrays, found.values(), strict=True)}
        if len(leading) > 1:
            raise Refusal(400, "`obs` must have one batch dimension for all keys")
        single = leading == {()}
        if not single and leading == {(0,)}:
            raise Refusal(400, "`obs` is empty")
        return single, {name: x[None] if single else x for name, x in found.items()}

    def zeros(self, batch: int) -> dict[str, np.ndarray]:
        """Observations of zeros, and of the first value of integers that start elsewhere."""
        return {a.name: np.zeros((batch, *a.shape), a.dtype) + a.start.astype(a.dtype) for a in self.arrays}

    def random_observations(self, batch: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Observations of any values, to time a policy with."""
        found = self.zeros(batch)
        for array in self.arrays:
            x = found[array.name]
            if array.choices is not None:
                x[...] = array.start + rng.integers(0, array.choices, x.shape)
            else:
                x[...] = rng.integers(0, 100, x.shape) if x.dtype.kind in "iub" else rng.normal(size=x.shape)
        return found


class ActionWriter:
    """Actions as the environment takes them."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        """Takes the `action` of spaces.json; raises as `ObservationReader`."""
        self._parts: list[tuple[str, int, tuple[int, ...], np.dtype[Any]]] = []
        for name, part in space["parts"].items() if space["type"] == "mixed" else ():
            shape = _shape(part["shape"])
            self._parts.append((name, int(np.prod(shape)), shape, np.dtype(part["dtype"])))

    def write(self, action: np.ndarray) -> Any:
        """The action itself, or its parts by name."""
        if not self._parts:
            return action
        found = {}
        start = 0
        for name, size, shape, dtype in self._parts:
            piece = action[..., start : start + size]
            found[name] = piece.reshape((*piece.shape[:-1], *shape)).astype(dtype)
            start += size
        return found


def nest(found: Mapping[str, Any], arrays: tuple[ArraySpace, ...]) -> Any:
    """The observation whose arrays are `found`: an array, or a dict of dicts."""
    tree: Any = {}
    for array in arrays:
        if not array.path:
            return found[array.name]
        *path, leaf = array.path
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[leaf] = found[array.name]
    return tree


def _leaves(given: Any, space: Mapping[str, Any], shown: str) -> Iterator[Any]:
    if space["type"] != "dict":
        yield given
        return
    keys = sorted(space["spaces"])
    if not isinstance(given, dict) or sorted(map(str, given)) != keys:
        raise Refusal(400, f"`{shown}` must have the keys {', '.join(keys)}")
    for key in keys:
        yield from _leaves(given[key], space["spaces"][key], f"{shown}[{key!r}]")


def _arrays(space: Mapping[str, Any], name: str, path: tuple[str, ...]) -> Iterator[ArraySpace]:
    if space["type"] == "dict":
        for key in sorted(space["spaces"]):
            yield from _arrays(space["spaces"][key], f"{name}.{key}", (*path, key))
        return
    if space["type"] not in _KINDS:
        raise ValueError(f"no observation is {space['type']!r}")
    choices = space.get("nvec") if space["type"] == "multi_discrete" else space.get("n")
    shape = _shape(space["shape"])
    dtype = np.dtype(space["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"no observation is of {dtype}")
    start = np.broadcast_to(np.asarray(space.get("start", 0), np.int64), shape)
    yield ArraySpace(
        name, path, shape, dtype, None if choices is None else np.asarray(choices, np.int64), start
    )


def _shape(given: Any) -> tuple[int, ...]:
    shape = tuple(int(n) for n in given)
    if any(n < 1 for n in shape) or np.prod(shape, dtype=np.float64) > _LARGEST:
        raise ValueError(f"no array has the shape {shape}")
    return shape


def schema(space: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one element; raises an error such as KeyError or TypeError if `space` describes none."""
    if space["type"] in ("dict", "mixed"):
        parts = space["spaces"] if space["type"] == "dict" else space["parts"]
        return object_of({key: schema(part) for key, part in parts.items()}, sorted(parts))
    number = "number" if space["dtype"].startswith("float") else "integer"
    found: dict[str, Any] = {"type": number}
    if space["type"] == "discrete":
        first = space.get("start", 0)
        found |= {"minimum": first, "maximum": first + space["n"] - 1}
    for size in reversed(space["shape"]):
        found = {"type": "array", "items": found, "minItems": size, "maxItems": size}
    return found


def object_of(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """An object of these properties and no others."""
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": required} if required else {})
