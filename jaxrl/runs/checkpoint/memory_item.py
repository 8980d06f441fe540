"""The rows of a large memory as an item of a checkpoint: a file for each array and device, without a header.

Files are written and read block by block, so that host memory never holds more than a block of one.

The item of the checkpoint STEP is the folder `memory/STEP` beside it. It is written before its checkpoint
becomes complete, and older checkpoints' items are deleted afterwards, so that at any moment the newest
complete checkpoint has its own. The checkpoint's record describes the files, with a digest of each.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxrl.parallel import process_group
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, one_line
from jaxrl.runs.checkpoint.checkpoint_record import DIGEST, Record, content_hash, misfit

BLOCK_BYTES = 1 << 25
Place = tuple[int, ...]  # the index of a block's first element


class MemoryItems:
    """The memories of a folder of checkpoints; `is_used` once one was written or read.

    All processes must call `write` and `read`.
    """

    def __init__(self, checkpoints: epath.Path) -> None:
        self._folder = checkpoints / "memory"
        self.is_used = False

    def write(self, step: int, rows: Mapping[str, jax.Array]) -> dict[str, Any]:
        """Writes what the devices of this process hold, waits for the others, and describes all of it.

        Raises:
          OSError: a process cannot write its part.
        """
        self.is_used = True
        folder = self._folder / str(step)
        problem = ""
        written = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number, (name, array) in enumerate(sorted(rows.items())):
                written[name] = [
                    write_rows(
                        folder / f"{number}-{shard.device.id}",
                        name,
                        shard.data,
                        [part.start or 0 for part in shard.index],
                    )
                    for shard in array.addressable_shards
                    if shard.replica_id == 0
                ]
        except Exception as error:  # clients of buckets raise all kinds
            problem = one_line(error)
        found = process_group.everywhere([problem, written])
        if problem := next((each for each, _ in found if each), ""):
            raise OSError(problem)
        if storage.is_remote(folder):
            with storage.as_os_errors():
                process_group.by_first(lambda: (folder / checkpoint_files.COMMITTED).write_bytes(b""))
        return {
            name: {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "shards": [shard for _, each in found for shard in each[name]],
            }
            for name, array in rows.items()
        }

    def read(self, record: Record, abstract: Mapping[str, Any]) -> dict[str, jax.Array] | str:
        """The rows on the devices of `abstract`, or the reason why there are none, in words.

        Args:
          abstract: arrays as `jax.ShapeDtypeStruct` with a sharding, by `field/path`.

        Raises:
          CheckpointError: they are of another shape or dtype, or cannot be reached.
        """
        if record.memory is None:
            return "it was saved without"
        self.is_used = True
        self._require_fit(record, abstract)
        arrays = {}
        reason = ""
        unreachable = False
        try:
            if record.step not in self.steps():
                reason = "only the newest checkpoint keeps it"
            else:
                folder = self._folder / str(record.step)
                arrays = {name: _load(folder, name, record.memory[name], x) for name, x in abstract.items()}
        except (ValueError, FileNotFoundError) as error:
            reason = f"it is damaged: {one_line(error)}"
        except OSError as error:
            reason = one_line(error)
            unreachable = True
        found = [each for each in process_group.everywhere([reason, unreachable]) if each[0]]
        if any(cannot for _, cannot in found):
            raise CheckpointError(
                f"the memory of the checkpoint of step {record.step} cannot be read: {found[0][0]}"
            )
        return str(found[0][0]) if found else arrays

    def problem(self, record: Record) -> str | None:
        """The reason why the memory of a checkpoint cannot be restored, in words; reads all of it."""
        if record.memory is None:
            return None
        folder = self._folder / str(record.step)
        try:
            if record.step not in self.steps():
                return f"the memory {folder} is missing"
            for name, described in record.memory.items():
                for shard in described["shards"]:
                    for _ in read_rows(folder, name, described["dtype"], shard):
                        pass
        except (ValueError, OSError) as error:
            return f"the memory {folder} is damaged: {one_line(error)}"
        return None

    def steps(self) -> Mapping[int, epath.Path]:
        """The folders of memories by step, without ones being deleted; OSError if they cannot be listed."""
        return checkpoint_folder.find(self._folder).steps

    def clear(self, checkpoints: Collection[int]) -> None:
        """Deletes what was begun for checkpoints that never became complete, and remains of deletions."""
        found = checkpoint_folder.find(self._folder)
        self._remove([*found.unfinished, *(p for step, p in found.steps.items() if step not in checkpoints)])

    def keep_newest(self, newest: int) -> None:
        """Deletes the items of checkpoints before `newest`, which is complete."""
        self._remove([path for step, path in self.steps().items() if step < newest])

    def rewind(self, step: int) -> None:
        """Deletes the items after `step`."""
        self._remove([path for later, path in self.steps().items() if later > step])

    def _remove(self, paths: Collection[epath.Path]) -> None:
        for path in paths:
            checkpoint_files.remove(path)

    def _require_fit(self, record: Record, abstract: Mapping[str, Any]) -> None:
        assert record.memory is not None
        if found := misfit(record.memory, abstract):
            raise CheckpointError(f"the memory of step {record.step} in {self._folder.parent} {found}")


def _load(
    folder: epath.Path, name: str, described: Mapping[str, Any], abstract: jax.ShapeDtypeStruct
) -> jax.Array:
    """An array on its devices, from files of any number of devices; reads each file once."""
    sharding = abstract.sharding
    shape = abstract.shape
    assert sharding is not None
    places = {
        device: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    }
    parts = {
        device: jnp.zeros([end - start for start, end in place], abstract.dtype, device=device)
        for device, place in places.items()
    }
    for shard in described["shards"]:
        for start, block in read_rows(folder, name, described["dtype"], shard):
            for device, place in places.items():
                parts[device] = _put(parts[device], place, start, block)
    return jax.make_array_from_single_device_arrays(shape, sharding, list(parts.values()))


def _put(part: jax.Array, place: tuple[tuple[int, int], ...], start: Place, block: np.ndarray) -> jax.Array:
    """The part of an array that a device holds, with what a block has of it.

    Args:
      place: (start, end) of the part in the array, for each axis.
      start: of the block in the array.
    """
    low = [max(a, b) for a, (b, _) in zip(start, place, strict=True)]
    high = [min(a + n, end) for a, n, (_, end) in zip(start, block.shape, place, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return part
    inner = block[tuple(slice(a - s, b - s) for a, b, s in zip(low, high, start, strict=True))]
    at = np.asarray([a - b for a, (b, _) in zip(low, place, strict=True)], np.int32)
    # One block after the other: waiting ones would fill the host's memory.
    return jax.block_until_ready(_write(part, jax.device_put(inner, part.sharding), at))


@functools.partial(jax.jit, donate_argnums=0)
def _write(part: jax.Array, block: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(part, block, tuple(at))


def write_rows(file: epath.Path, name: str, part: jax.Array, start: Sequence[int]) -> dict[str, Any]:
    """Writes and describes the part of an array, from `start` on, that a device holds; may raise OSError."""
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


def read_rows(
    folder: epath.Path, name: str, dtype: str, described: Mapping[str, Any]
) -> Iterator[tuple[Place, np.ndarray]]:
    """The blocks of a file, each with its place in the whole array; they count once the last has come.

    Raises:
      ValueError: the file differs from what `write_rows` described.
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
    """(place, shape) of blocks of `most` bytes that are an array, in C order; each lies in one piece."""
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
        if (found := checkpoint_files.length(file)) != size:
            raise ValueError(f"{file} has {found} bytes, not {size}")
