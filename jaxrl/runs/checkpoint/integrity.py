"""Digests that prove that a checkpoint is unchanged: one per array, and one over the record of all.

A digest covers the contents of a whole array, independent of its devices, and its name, dtype and shape,
so that two swapped arrays are noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxrl.config.data_files import parse_json

DIGEST = "digest"  # the key in a description and in sealed content
_BYTES = 16  # 128 bits: no collisions by accident


def describe(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """The dtype, shape and digest of each array, as JSON values.

    Args:
      arrays: whole arrays in host memory, of any dtype and layout; contents count in C order.
    """
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
