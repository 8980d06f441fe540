"""Files with the rows of a large memory: one for each array and device, written and read block by block.

A file holds the rows in C order, without a header. Host memory never holds more than a block of it.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from jaxrl.runs import storage
from jaxrl.runs.checkpoint.checkpoint_files import length
from jaxrl.runs.checkpoint.checkpoint_record import DIGEST, content_hash

BLOCK_BYTES = 1 << 25

Place = tuple[int, ...]  # the index of a block's first element


def write(file: epath.Path, name: str, part: jax.Array, start: Sequence[int]) -> dict[str, Any]:
    """Writes the part of an array that one device holds, and describes it.

    Args:
      file: to be written.
      part: on one device.
      start: where the part begins in the array.

    Raises:
      OSError: it cannot be written.
    """
    header = {"start": list(start), "shape": list(part.shape)}
    digest = content_hash(name, header)
    with storage.as_os_errors(), file.open("wb") as stream:
        for place, shape in blocks(part.shape, part.dtype.itemsize):
            block = np.ascontiguousarray(np.asarray(_block(part, np.asarray(place, np.int32), shape)))
            content = block.reshape(-1).view(np.uint8).data
            digest.update(content)
            stream.write(content)
        if not storage.is_remote(file):
            # The memory of an older checkpoint is deleted afterwards.
            stream.flush()
            os.fsync(stream.fileno())
    return header | {"file": file.name, DIGEST: digest.hexdigest()}


def read(
    folder: epath.Path, name: str, dtype: str, described: Mapping[str, Any]
) -> Iterator[tuple[Place, np.ndarray]]:
    """The blocks of a file, each with its place in the whole array; they count once the last has come.

    Args:
      described: as `write` returned it.

    Raises:
      ValueError: the file differs from the written one.
      OSError: it cannot be read.
    """
    file = folder / described["file"]
    kind = np.dtype(dtype)
    start = described["start"]
    shape = described["shape"]
    digest = content_hash(name, {"start": start, "shape": shape})
    _require_plain(file, math.prod(shape) * kind.itemsize)
    with storage.as_os_errors(), file.open("rb") as stream:
        for place, size in blocks(shape, kind.itemsize):
            content = stream.read(math.prod(size) * kind.itemsize)
            digest.update(content)
            block = np.frombuffer(content, kind).reshape(size)
            yield tuple(a + b for a, b in zip(start, place, strict=True)), block
    if digest.hexdigest() != described[DIGEST]:
        raise ValueError(f"the rows {name} in {file} are not what was saved")


def blocks(
    shape: Sequence[int], itemsize: int, most: int | None = None
) -> Iterator[tuple[Place, tuple[int, ...]]]:
    """(place, shape) of blocks that together are an array, in C order; each lies in one piece.

    Args:
      most: bytes of a block; None for `BLOCK_BYTES`.
    """
    if not shape:
        yield (), ()
        return
    most = most or BLOCK_BYTES
    axis = next(
        (i for i in range(len(shape)) if math.prod(shape[i + 1 :]) * itemsize <= most), len(shape) - 1
    )
    rest = tuple(shape[axis + 1 :])
    rows = max(1, most // max(1, math.prod(rest) * itemsize))
    for lead in itertools.product(*map(range, shape[:axis])):
        for at in range(0, shape[axis], rows):
            size = (*(1 for _ in lead), min(rows, shape[axis] - at), *rest)
            yield (*lead, at, *(0 for _ in rest)), size


@functools.partial(jax.jit, static_argnums=2)
def _block(x: jax.Array, place: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.dynamic_slice(x, tuple(place), shape) if shape else x


def _require_plain(file: epath.Path, size: int) -> None:
    """Raises ValueError for a link, a pipe, or a file of another size."""
    if not storage.is_remote(file) and not stat.S_ISREG(os.lstat(file).st_mode):
        raise ValueError(f"{file} is no plain file")
    with storage.as_os_errors():
        if (found := length(file)) != size:
            raise ValueError(f"{file} has {found} bytes, not {size}")
