"""The facts in a model's files, and arrays of their spaces: from a request's values, checked; and back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.data_files import read_object
from jaxrl.inference.serving import Refusal

_KINDS = ("box", "discrete", "multi_discrete")
_FEW = 256  # elements of an observation: reading several of these at once is faster than one by one
_LARGEST = 2**23  # elements of an observation
_LARGEST_CARRY = 2**24


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """The facts in a model's files.

    Attributes:
      label: how it is shown: `walker version 3`, or a path.
      spaces: content of spaces.json.
      carry: shape of each array of the carry, without batch, by name.
      carry_dtypes: their dtypes.
      mask_size: length of an action mask; None without masks.
      fixed_batch: the only batch size that its StableHLO takes, or None.
      record: content of model.json.
    """

    label: str
    spaces: Mapping[str, Any]
    carry: Mapping[str, tuple[int, ...]]
    carry_dtypes: Mapping[str, np.dtype[Any]]
    mask_size: int | None
    fixed_batch: int | None
    record: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, label: str) -> ModelFacts:
        """Reads the files of a model; raises ValueError, KeyError, TypeError or OSError if they are none."""
        description, record, spaces = (
            read_object(folder / f"{name}.json") for name in ("policy", "model", "spaces")
        )
        carry = {}
        dtypes = {}
        for name, array in description["inputs"].items():
            if name.partition(".")[0] == "carry":
                shape = tuple(int(n) for n in array["shape"][1:])
                if any(n < 0 for n in shape) or np.prod(shape, dtype=np.float64) > _LARGEST_CARRY:
                    raise ValueError(f"no carry has the shape {shape}")
                carry[name] = shape
                dtypes[name] = _number_type(array["dtype"], "carry")
        batch = str(record["forms"].get("stablehlo", {}).get("batch", "any size"))
        fixed = int(batch.split()[0]) if batch.split()[0].isdecimal() else None
        mask = spaces["action_mask"]
        for space in ("observation", "action"):
            schema(spaces[space])  # or raises
        if not isinstance(record.get("provenance"), dict):
            raise ValueError("model.json lacks its provenance")
        return cls(label, spaces, carry, dtypes, None if mask is None else int(mask), fixed, record)


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
        """[*shape] or [B, *shape] of the space's dtype; raises Refusal if it does not fit."""
        shown = "obs" + "".join(f"[{key!r}]" for key in self.path)
        last = None if self.choices is None else self.start + self.choices - 1
        try:
            return cast(shown, given, self.shape, self.dtype, self.start, last)
        except ValueError as error:
            raise Refusal(400, str(error)) from error


def cast(
    name: str,
    given: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    first: np.ndarray | None,
    last: np.ndarray | None,
) -> np.ndarray:
    """An element of a space of arrays, or a batch of them, in the space's type.

    Raises:
      ValueError: the shape or type is another, or a value is not finite or not from `first` to `last`.
    """
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError) as error:
        kind = type(given).__name__
        raise ValueError(
            f"`{name}` must be an array, not {kind}: {error}; its shape is {list(shape)}"
        ) from error
    fits = 0 not in array.shape and array.shape in (shape, (*array.shape[:1], *shape))
    if not fits and array.dtype.kind != "O":
        batch = ", ".join(map(str, ("B", *shape)))
        wanted = f"it must be {list(shape)} or [{batch}]"
        raise ValueError(f"`{name}` has the shape {list(array.shape)}, {wanted}")
    integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    if not integers and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"`{name}` is of {array.dtype.name}, it must be of {dtype.name}")
    with np.errstate(over="ignore", invalid="ignore"):
        found = array.astype(dtype)
    if integers and (found != array).any():
        raise ValueError(f"`{name}` holds an integer that {dtype} does not hold")
    if not np.isfinite(found).all():
        raise ValueError(f"`{name}` must be finite in {dtype}")
    if first is not None and last is not None and ((found < first) | (found > last)).any():
        least = first.tolist() if first.any() else 0
        raise ValueError(f"`{name}` must be from {least} to {last.tolist()}")
    return found


class ObservationReader:
    """Reads observations, one or a batch."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        """Takes the `observation` of spaces.json; raises ValueError, KeyError or TypeError if it is none."""
        self.arrays = tuple(_arrays(space, "obs", ()))
        self._space = space
        small = [array for array in self.arrays if not array.path and math.prod(array.shape) <= _FEW]
        self._small = small[0] if small else None  # the only array, unless it is large

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
        return single, {name: x[None] if single else x for name, x in found.items()}

    def is_one(self, given: Any) -> bool:
        """True if `given` seems to be one observation of JSON, which `read` may take in a list of such.

        Each has the same bits in the list as alone. The list is refused if one of them is.
        """
        if self._small is None:
            return False
        for size in self._small.shape:
            if not isinstance(given, list) or len(given) != size:
                return False
            given = given[0]
        # An integer becomes float64 beside floats, and may be rounded twice then.
        return type(given) is (float if self._small.dtype.kind == "f" else int)

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


def action_writer(space: Mapping[str, Any]) -> Callable[[np.ndarray], Any]:
    """Takes the `action` of spaces.json; returns a function of actions to themselves, or to parts by name.

    Raises as `ObservationReader`.
    """
    if space["type"] != "mixed":
        return lambda action: action
    parts = {name: (_shape(x["shape"]), np.dtype(x["dtype"])) for name, x in space["parts"].items()}
    ends = np.cumsum([int(np.prod(shape)) for shape, _ in parts.values()])

    def write(action: np.ndarray) -> dict[str, np.ndarray]:
        pieces = zip(parts.items(), np.split(action, ends, axis=-1)[:-1], strict=True)
        return {name: x.reshape((*x.shape[:-1], *shape)).astype(kind) for (name, (shape, kind)), x in pieces}

    return write


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
    dtype = _number_type(space["dtype"], "observation")
    start = np.broadcast_to(np.asarray(space.get("start", 0), np.int64), shape)
    yield ArraySpace(
        name, path, shape, dtype, None if choices is None else np.asarray(choices, np.int64), start
    )


def _number_type(given: Any, what: str) -> np.dtype[Any]:
    dtype = np.dtype(given)
    if dtype.kind not in "biuf":
        raise ValueError(f"no {what} is of {dtype}")
    return dtype


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
