"""The record of a checkpoint: step, score, the trainer's data, and a digest of every array."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

from jaxrl.config.errors import errors_as
from jaxrl.runs.checkpoint import integrity

# Bytes of the file; records with thousands of arrays take a hundredth of it.
LARGEST = 1 << 26

# In `meta`: the mode of evaluations that decided when the state was saved, greedy or sampled; or None.
MODE = "mode"
# In `meta`: the step after which scores are of the same environment as this one's; of records without it 0.
COMPARABLE_AFTER = "comparable_after"


class ImplausibleSize(ValueError):
    """Files are far larger, or far more, than a save makes: they are not read at all."""


@dataclasses.dataclass(frozen=True)
class Record:
    """The verified `meta` of a checkpoint.

    Attributes:
      score: the evaluation return, in the mode that decided, or None.
      meta: the data that the trainer stored.
      arrays: dtype, shape and digest of each array, by `field/path`.
      memory: the rows of a large memory, by `field/path`, as `MemoryItems.write` describes them; or None.
    """

    step: int
    score: float | None
    meta: Mapping[str, Any]
    arrays: Mapping[str, Mapping[str, Any]]
    memory: Mapping[str, Any] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the state that hold arrays."""
        return tuple(sorted({name.partition("/")[0] for name in self.arrays}))


def seal(
    step: int,
    score: float | None,
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    memory: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON to store, for `parse`."""
    return seal_again(Record(step, score, meta, integrity.describe(arrays), memory))


def seal_again(record: Record) -> dict[str, Any]:
    """The JSON of a record; without a large memory it does not mention one."""
    content = dataclasses.asdict(record)
    if record.memory is None:
        del content["memory"]
    return integrity.seal(content)


def parse(text: str) -> Record:
    """The record of the JSON that `seal` returned.

    Raises:
      ValueError: it is not the JSON that was sealed, or a field is missing or of the wrong type.
    """
    content = integrity.unseal(text)
    require(content, {"step": is_count, "score": _is_score, "meta": is_object, "arrays": _has_entries})
    for name, described in content["arrays"].items():
        if not is_object(described):
            raise ValueError(f"the array {name} is not described")
        with errors_as(ValueError, f"the array {name}", ValueError):
            require(described, {"dtype": _is_dtype, "shape": _is_shape, "digest": _is_text})
    if "memory" in content:
        require(content, {"memory": _has_entries})
    else:
        content["memory"] = None
    for name, described in (content["memory"] or {}).items():
        with errors_as(ValueError, f"the array {name}", ValueError, TypeError, KeyError, AttributeError):
            _require_shards(described)
    return Record(**{field.name: content[field.name] for field in dataclasses.fields(Record)})


def require(content: Mapping[str, Any], rules: Mapping[str, Callable[[Any], bool]]) -> None:
    """Raises ValueError, naming the first of `rules` that `content` lacks or breaks."""
    for name, holds in rules.items():
        if name not in content:
            raise ValueError(f"`{name}` is missing")
        if not holds(content[name]):
            raise ValueError(f"`{name}` (={str(content[name])[:40]}) is nothing that is saved there")


def is_count(x: Any) -> TypeGuard[int]:
    """A whole number from 0 on that fits into 64 bits."""
    return type(x) is int and 0 <= x < 2**63


def is_number(x: Any) -> bool:
    """A finite number."""
    return type(x) in (int, float) and abs(x) < 1e300 and math.isfinite(x)


def is_object(x: Any) -> bool:
    """A JSON object."""
    return isinstance(x, dict)


def _require_shards(described: Any) -> None:
    """Raises an error for a description of rows that `MemoryItems.write` does not make."""
    require(described, {"dtype": _is_dtype, "shape": _is_shape, "shards": lambda x: isinstance(x, list)})
    for shard in described["shards"]:
        rules = {"file": is_memory_file, "start": _is_shape, "shape": _is_shape, "digest": _is_text}
        require(shard, rules)
        ends = [a + n for a, n in zip(shard["start"], shard["shape"], strict=True)]
        if any(end > size for end, size in zip(ends, described["shape"], strict=True)):
            raise ValueError("a part reaches beyond the array")
    if sum(math.prod(shard["shape"]) for shard in described["shards"]) != math.prod(described["shape"]):
        raise ValueError("its parts are not the whole")


def is_memory_file(name: Any) -> bool:
    """True for the name of a file that holds the rows of one array on one device."""
    return isinstance(name, str) and re.fullmatch(r"[0-9]+-[0-9]+", name, re.ASCII) is not None


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
