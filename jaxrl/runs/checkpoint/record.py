"""The record of a checkpoint: its step, its score, what the trainer stored, and a digest of every array."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxrl.runs.checkpoint import integrity

# Bytes of the file; records of populations with thousands of arrays take a hundredth of it.
LARGEST = 1 << 26


class ImplausibleSize(ValueError):
    """Files are far larger, or far more, than a save makes them: they are not read to find out why."""


@dataclasses.dataclass(frozen=True)
class Record:
    """The verified `meta` of a checkpoint.

    Attributes:
      step: environment steps made.
      score: the greedy evaluation return, or None.
      meta: what the trainer stored.
      arrays: dtype, shape and digest of each array, by `field/path`.
    """

    step: int
    score: float | None
    meta: Mapping[str, Any]
    arrays: Mapping[str, Mapping[str, Any]]

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the state that hold arrays."""
        return tuple(sorted({name.partition("/")[0] for name in self.arrays}))


def sealed(
    step: int, score: float | None, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The JSON to store, for `parse`."""
    record = Record(step, score, meta, integrity.describe(arrays))
    return integrity.seal(dataclasses.asdict(record))


def parse(text: str) -> Record:
    """The record that `sealed` gave, from its JSON.

    Raises:
      ValueError: it is not what was sealed, or lacks something, or something is of the wrong type.
    """
    content = integrity.unseal(text)
    require(content, {"step": is_count, "score": _is_score, "meta": is_object, "arrays": _has_entries})
    for name, described in content["arrays"].items():
        if not is_object(described):
            raise ValueError(f"the array {name} is not described")
        try:
            require(described, {"dtype": _is_dtype, "shape": _is_shape, "digest": _is_text})
        except ValueError as error:
            raise ValueError(f"the array {name}: {error}") from error
    return Record(**{field.name: content[field.name] for field in dataclasses.fields(Record)})


def require(content: Mapping[str, Any], rules: Mapping[str, Callable[[Any], bool]]) -> None:
    """Raises ValueError, naming the first of `rules` that `content` lacks or breaks."""
    for name, holds in rules.items():
        if name not in content:
            raise ValueError(f"`{name}` is missing")
        if not holds(content[name]):
            raise ValueError(f"`{name}` (={str(content[name])[:40]}) is nothing that is saved there")


def is_count(x: Any) -> bool:
    """A whole number from 0 on that fits into 64 bits."""
    return type(x) is int and 0 <= x < 2**63


def is_number(x: Any) -> bool:
    """A finite number."""
    return type(x) in (int, float) and abs(x) < 1e300 and math.isfinite(x)


def is_object(x: Any) -> bool:
    """A JSON object."""
    return isinstance(x, dict)


def _has_entries(x: Any) -> bool:
    return is_object(x) and bool(x)


def _is_score(x: Any) -> bool:
    return x is None or is_number(x)


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _is_dtype(x: Any) -> bool:
    try:
        return isinstance(x, str) and np.dtype(x).kind != "O" and str(np.dtype(x)) == x
    except TypeError:
        return False


def _is_shape(x: Any) -> bool:
    return isinstance(x, list) and all(map(is_count, x)) and math.prod(x) < 2**60
