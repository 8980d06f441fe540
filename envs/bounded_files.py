"""Readers of files that may come from anyone: bounded.

A file must be a regular one, of at most so many bytes and lines; JSON in it is at most `DEEPEST` levels deep.
Nothing here waits for a writer or fills the memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

LARGEST_FILE = 64 * 2**20  # bytes
MOST_LINES = 2_000_000  # A run that logs each second writes them in three weeks.
DEEPEST = 100  # levels
FilePath = str | os.PathLike[str]


def open_regular(path: FilePath) -> BinaryIO:
    """Opens a regular file, local or gs://, for reading; OSError of others: a folder, a pipe, a device."""
    name = os.fspath(path)
    if "://" in name:
        from etils import epath

        return epath.Path(name).open("rb")
    # Without O_NONBLOCK, a pipe would wait for its writer.
    stream = open(name, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is no regular file", name)
    return stream


def read_bytes(path: FilePath, largest: int = LARGEST_FILE, offset: int = 0) -> bytes:
    """Reads a file from `offset` on; OSError as `open_regular`, or if it is longer than `largest` bytes."""
    with open_regular(path) as stream:
        if stream.seek(0, os.SEEK_END) > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest >> 20} MiB", os.fspath(path))
        stream.seek(offset)
        return stream.read(max(0, largest - offset))  # Though it may be growing.


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Reads JSON in UTF-8, with NaN and Infinity as Python writes them.

    `pairs` makes the value of an object from its keys and values; None makes a dict. ValueError: it is no
    JSON, or too large or deep.
    """
    if len(text) > LARGEST_FILE:
        raise ValueError(f"it is larger than {LARGEST_FILE >> 20} MiB")
    decoded = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(decoded, object_pairs_hook=pairs)
    except RecursionError as error:
        raise ValueError(too_deep()) from error
    if decoded.count("[") + decoded.count("{") > DEEPEST:
        _require_shallow(value)
    return value


def read_json(path: FilePath) -> Any:
    """Reads a file of JSON; raises OSError as `read_bytes` and ValueError as `parse_json`."""
    return parse_json(read_bytes(path))


def read_object(path: FilePath) -> dict[str, Any]:
    """Reads a file that holds a JSON object; raises as `read_json`."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError("it must hold a JSON object")
    return found


def split_lines(content: bytes, path: FilePath) -> list[bytes]:
    """The lines of a file's content, with their ends; raises OSError if there are more than `MOST_LINES`."""
    if content.count(b"\n") + content.count(b"\r") > MOST_LINES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_LINES:,} lines", os.fspath(path))
    return content.splitlines(keepends=True)


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(too_deep())


def too_deep() -> str:
    """The error of JSON or YAML of more than `DEEPEST` levels."""
    return f"it is nested more than {DEEPEST} levels deep"
