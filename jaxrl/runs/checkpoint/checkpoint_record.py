"""The record of a checkpoint: step, score, the trainer's data, and digests that prove that it is unchanged.

The digest of an array covers the contents of all of it, independent of its devices, and its name, dtype and
shape, so that two swapped arrays are noticed; another digest covers the record.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeGuard

import numpy as np

from jaxrl.config.data_files import parse_json
from jaxrl.config.errors import errors_as

# Bytes of the file; records with thousands of arrays take a hundredth of it.
LARGEST = 1 << 26
DIGEST = "digest"  # the key in a description and in sealed content
_BYTES = 16  # 128 bits: no collisions by accident
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

    def part(self, fields: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """The arrays of some fields, or parts of them such as `learner/policy`, as described."""
        places = tuple(fields)
        return {
            name: described
            for name, described in self.arrays.items()
            if any(name == place or name.startswith(f"{place}/") for place in places)
        }

    def sealed(self) -> dict[str, Any]:
        """The JSON to store, for `parse`; without a large memory it does not mention one."""
        content = dataclasses.asdict(self)
        if self.memory is None:
            del content["memory"]
        return seal(content)


def misfit(held: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Any]) -> str:
    """The first array that is not the same in a record and among wanted ones, in words; "" if all are."""
    for name in sorted(held.keys() | wanted.keys()):
        there = f"{held[name]['dtype']}{held[name]['shape']}" if name in held else "absent"
        here = f"{wanted[name].dtype}{list(wanted[name].shape)}" if name in wanted else "absent"
        if there != here:
            return f"does not fit: {name} is {there} there and {here} in this configuration"
    return ""


def parse(text: str) -> Record:
    """The record that was sealed.

    Raises:
      ValueError: it is not the JSON that was sealed, or a field is missing or of the wrong type.
    """
    content = unseal(text)
    score = {"score": lambda x: x is None or is_number(x)}
    require(content, {"step": is_count, **score, "meta": is_object, "arrays": _has_entries})
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


def describe(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Dtype, shape and digest of whole arrays in host memory, as JSON values; contents count in C order."""
    # hashlib releases the GIL: large arrays are hashed in parallel.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(arrays, pool.map(_description, arrays, arrays.values()), strict=True))


def content_hash(name: str, header: Mapping[str, Any]) -> Any:
    """A hash, as of hashlib, that has name and header of an array, and gets its contents next."""
    return hashlib.blake2b(json.dumps([name, header], sort_keys=True).encode(), digest_size=_BYTES)


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-compatible `content` as JSON will return it, with its digest added.

    Raises:
      TypeError, ValueError: the content is not JSON-compatible.
    """
    plain = json.loads(json.dumps(dict(content)))
    return plain | {DIGEST: _content_digest(plain)}


def unseal(text: str) -> dict[str, Any]:
    """The content that was sealed.

    Raises:
      ValueError: the text is not a JSON object, or its digest is missing or wrong.
    """
    sealed = parse_json(text)
    if not isinstance(sealed, dict) or DIGEST not in sealed:
        raise ValueError("it holds no digest")
    content = {name: value for name, value in sealed.items() if name != DIGEST}
    if sealed[DIGEST] != _content_digest(content):
        raise ValueError("its digest does not match its content")
    return content


def _description(name: str, array: np.ndarray) -> dict[str, Any]:
    header = {"dtype": str(array.dtype), "shape": list(array.shape)}
    hashed = content_hash(name, header)
    hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return header | {DIGEST: hashed.hexdigest()}


def _content_digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_BYTES).hexdigest()


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


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _is_dtype(x: Any) -> bool:
    try:
        return isinstance(x, str) and np.dtype(x).kind != "O" and str(np.dtype(x)) == x
    except TypeError:
        return False


def _is_shape(x: Any) -> bool:
    return isinstance(x, list) and all(map(is_count, x)) and math.prod(x) < 2**60
