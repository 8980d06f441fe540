"""The arrays of a checkpoint as Orbax stores them, read through tensorstore alone.

The files are not trusted: their contents are compared with the checkpoint's record before memory is used.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
from etils import epath

from jaxrl.config import text
from jaxrl.config.errors import errors_as
from jaxrl.runs import storage
from jaxrl.runs.checkpoint.checkpoint_files import length, size
from jaxrl.runs.checkpoint.checkpoint_record import ImplausibleSize

# Bytes that the files may take beyond the arrays, for indices and descriptions.
_ROOM = 1 << 26
_ROOM_PER_ARRAY = 1 << 14
# Orbax looks for its files with `glob`, which takes brackets and backslashes for a pattern, and tensorstore
# takes UTF-8 only.
_PLAIN = re.compile(r"[\w./ +,=@~^-]*")


def read(path: epath.Path, described: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Whole arrays in host memory, for all devices: every process checks all of them.

    Args:
      path: the item of a checkpoint that holds them.
      described: dtype and shape by `field/path`.

    Raises:
      ValueError: an array is missing, or has another dtype or shape.
      MemoryError: together they are larger than the memory of this machine.
    """
    total = sum(map(nbytes, described.values()))
    if total > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise MemoryError(f"its arrays take {text.size(total)}, more than the memory of this machine")
    reads = {}
    arrays = {}
    with _open_stores(path, described) as stores:
        for name, store in stores.items():
            reads[name] = store.read()
        for name, future in reads.items():
            with errors_as(ValueError, f"the array {name}", ValueError):
                arrays[name] = np.asarray(future.result())
    return arrays


def require_present(path: epath.Path, described: Mapping[str, Mapping[str, Any]]) -> None:
    """Reads back the index of arrays that have just been written, but not their contents.

    Raises:
      ValueError: an array is missing or of another shape or dtype, or a file ends before what it should hold.
    """
    with _open_stores(path, described), plain_path(path) as plain:
        lengths: dict[str, int] = {}
        for location in _content_locations(plain):
            # `value:BASE:FILE:OFFSET:LENGTH`, percent-encoded; BASE is a folder.
            _, _, rest = location.partition(":")
            name, offset, count = rest.rsplit(":", 2)
            file = unquote(name.replace(":", "", 1))
            lengths[file] = max(lengths.get(file, 0), int(offset) + int(count))
        for file, least in lengths.items():
            found = length(plain / file) if (plain / file).exists() else 0
            if found < least:
                raise ValueError(f"{file} has {found} bytes of at least {least}")


def require_plausible_size(path: epath.Path, described: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ImplausibleSize if the files below `path` are far larger than all arrays together."""
    if storage.is_remote(path):
        return  # Sizes of objects cannot be faked.
    # An interrupted merge leaves a second copy.
    most = 2 * sum(map(nbytes, described.values())) + _ROOM + _ROOM_PER_ARRAY * len(described)
    if path.is_dir() and (found := size(path)) > most:
        raise ImplausibleSize(f"its files have {text.size(found)}, more than what was saved can take")


def nbytes(described: Mapping[str, Any]) -> int:
    """Bytes of an array, given its dtype and shape."""
    return math.prod(described["shape"]) * np.dtype(described["dtype"]).itemsize


@contextlib.contextmanager
def _open_stores(path: epath.Path, described: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Stores that have been compared with the description of their arrays."""
    # Not through Orbax: when one of its reads fails, the others print tracebacks from their threads.
    import tensorstore as ts

    context = ts.Context()  # a new cache: nothing that was read before
    with plain_path(path) as plain:

        def open_array(name: str) -> Any:
            # Orbax joins the keys of its tree, `field` and `path`, with a dot.
            store = {"driver": "ocdbt", "base": _base(plain), "path": f"{name.replace('/', '.', 1)}/"}
            return ts.open({"driver": "zarr", "kvstore": store}, open=True, read=True, context=context)

        futures = {name: open_array(name) for name in described}
        stores = {}
        for name, future in futures.items():
            with errors_as(ValueError, f"the array {name}", ValueError):
                stores[name] = future.result()
        for name, store in stores.items():
            _compare(name, store, described[name])
        yield stores


def _compare(name: str, store: Any, described: Mapping[str, Any]) -> None:
    """Raises ValueError for a store that would take more memory than the array that was saved."""
    dtype = store.dtype.numpy_dtype
    shape = list(store.shape)
    chunk = store.chunk_layout.read_chunk.shape or ()  # None for a scalar
    fits = all(c <= max(s, 1) for c, s in zip(chunk, shape, strict=True))
    if str(dtype) != described["dtype"] or shape != described["shape"] or not fits:
        raise ValueError(f"the array {name} is not what was saved")


def _base(path: epath.Path) -> Any:
    return f"{path}/" if storage.is_remote(path) else {"driver": "file", "path": f"{path}/"}


def _content_locations(path: epath.Path) -> Iterator[str]:
    """The locations of contents, according to the index."""
    import tensorstore as ts

    base = ts.KvStore.open(_base(path)).result()
    waiting = [v["root"]["location"] for v in ts.ocdbt.dump(base).result()["versions"][-1:]]
    while waiting:
        node = ts.ocdbt.dump(base, waiting.pop()).result()
        for entry in node["entries"]:
            if "location" in entry:
                waiting.append(entry["location"])
            elif "indirect_value" in entry:
                yield entry["indirect_value"]


@contextlib.contextmanager
def plain_path(folder: epath.Path) -> Iterator[epath.Path]:
    """A path to `folder` in plain characters during the block: its own, or a symbolic link to it.

    Orbax or tensorstore would misread others.
    """
    if storage.is_remote(folder) or _PLAIN.fullmatch(os.fspath(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="jaxrl-") as place:
        link = os.path.join(place, "folder")
        os.symlink(os.path.abspath(folder), link)
        yield epath.Path(link)
