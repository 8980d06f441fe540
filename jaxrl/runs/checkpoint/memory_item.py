"""The rows of a large memory as an item of a checkpoint: streamed, a file for each array and device.

The item of the checkpoint STEP is the folder `memory/STEP` beside it. It is written before its checkpoint
becomes complete, and older checkpoints' items are deleted afterwards, so that at any moment the newest
complete checkpoint has its own. The checkpoint's record describes the files, with a digest of each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxrl.parallel import process_group
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder, memory_files
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, one_line
from jaxrl.runs.checkpoint.checkpoint_record import Record

FOLDER = "memory"


class MemoryItems:
    """The memories of a folder of checkpoints. All processes must call `write` and `read`.

    Attributes:
      is_used: True once a memory was written or read.
    """

    def __init__(self, checkpoints: epath.Path) -> None:
        """`checkpoints` is the folder of checkpoints."""
        self._folder = checkpoints / FOLDER
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
                    memory_files.write(
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
            process_group.by_first(lambda: _mark_complete(folder))
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
                    for _ in memory_files.read(folder, name, described["dtype"], shard):
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
        for name in sorted(record.memory.keys() | abstract.keys()):
            held = record.memory.get(name)
            wanted = abstract.get(name)
            there = f"{held['dtype']}{held['shape']}" if held is not None else "absent"
            here = f"{wanted.dtype}{list(wanted.shape)}" if wanted is not None else "absent"
            if there != here:
                raise CheckpointError(
                    f"the memory of step {record.step} in {self._folder.parent} does not fit: "
                    f"{name} is {there} there and {here} in this configuration"
                )


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
        for start, block in memory_files.read(folder, name, described["dtype"], shard):
            for device, place in places.items():
                parts[device] = _put(parts[device], place, start, block)
    return jax.make_array_from_single_device_arrays(shape, sharding, list(parts.values()))


def _put(
    part: jax.Array, place: tuple[tuple[int, int], ...], start: memory_files.Place, block: np.ndarray
) -> jax.Array:
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


def _write_block(part: jax.Array, block: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(part, block, tuple(at))


_write = jax.jit(_write_block, donate_argnums=0)


def _mark_complete(folder: epath.Path) -> None:
    with storage.as_os_errors():
        (folder / checkpoint_files.COMMITTED).write_bytes(b"")
