"""The state of a checkpoint on the devices: compared with the wanted state, then read."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from jaxrl.runs.checkpoint import checkpoint_folder, state_arrays
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError
from jaxrl.runs.checkpoint.checkpoint_record import Record
from jaxrl.runs.checkpoint.memory_item import MemoryItems
from jaxrl.runs.checkpoint.state_arrays import MEMORY

log = logging.getLogger(__name__)


def restore_state(folder: epath.Path, record: Record, abstract_state: Any) -> Any:
    """The state without the rows of a large memory; without any `memory` if it has to start empty.

    Args:
      abstract_state: as for `Checkpointer.restore`.

    Raises:
      CheckpointError: as for `Checkpointer.restore`.
    """
    abstract, rows = state_arrays.split(abstract_state)
    fields = state_arrays.fields(abstract)
    compare = record.fields
    if MEMORY in fields and (fields[MEMORY] is None or (rows and record.memory is None)):
        fields = {**fields, MEMORY: None}
        compare = tuple(name for name in compare if name != MEMORY)
    restored = restore_fields(folder, record, fields, compare)
    if dataclasses.is_dataclass(abstract):
        return dataclasses.replace(abstract, **restored)  # type: ignore[type-var]
    return restored


def with_memory(memories: MemoryItems, state: Any, record: Record, abstract_state: Any) -> Any:
    """The state with the rows of its large memory; with a `memory` of None, and a warning, if they are gone.

    Raises:
      CheckpointError: the rows do not fit, or cannot be reached.
    """
    _, abstract = state_arrays.split(abstract_state)
    if not abstract:
        return state
    rows = memories.read(record, abstract)
    if not isinstance(rows, str):
        return state_arrays.join(state, abstract_state, rows)
    log.warning("the memory of step %d is not in its checkpoint, %s: it starts empty", record.step, rows)
    return state_arrays.replace_memory(state, None)


def restore_fields(
    folder: epath.Path, record: Record, fields: Mapping[str, Any], compare: Sequence[str]
) -> dict[str, Any]:
    """Restores `fields`, which must hold every stored array of the fields `compare` and nothing else.

    Raises:
      CorruptCheckpoint: the files differ from the saved ones.
      CheckpointError: the arrays differ in name, shape or dtype.
    """
    expected = {
        f"{field}/{name}": array
        for field, tree in fields.items()
        for name, array in state_arrays.expected_arrays(tree).items()
    }
    if lacking := {name.partition("/")[0] for name in expected} - set(record.fields):
        raise CheckpointError(
            f"the checkpoint of step {record.step} in {folder} was written by another version of "
            f"jaxrl: it has no {', '.join(sorted(lacking))}, it holds {', '.join(record.fields)}"
        )
    # Orbax would cast silently, or fail with pages of trees.
    held = {k: v for k, v in record.arrays.items() if state_arrays.is_part(k, compare)}
    for name in sorted(held.keys() | expected.keys()):
        there = f"{held[name]['dtype']}{held[name]['shape']}" if name in held else "absent"
        here = f"{expected[name].dtype}{list(expected[name].shape)}" if name in expected else "absent"
        if there != here:
            raise CheckpointError(
                f"the checkpoint of step {record.step} in {folder} does not fit: "
                f"{name} is {there} there and {here} in this configuration"
            )
    arrays = checkpoint_folder.read_arrays(folder / str(record.step), record, fields)
    return {name: state_arrays.rebuild(name, tree, arrays) for name, tree in fields.items()}
