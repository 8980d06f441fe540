"""The training state as named arrays, independent of the classes that hold it, and back from a checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxrl.parallel.bulk import without_bulk
from jaxrl.runs.checkpoint import checkpoint_folder
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError
from jaxrl.runs.checkpoint.checkpoint_record import Record, misfit
from jaxrl.runs.checkpoint.memory_item import MemoryItems

log = logging.getLogger(__name__)

MEMORY = "memory"  # the field of the state that may hold rows of a large memory


def fields(state: Any) -> dict[str, Any]:
    """The trees of a dataclass or mapping, by name."""
    if isinstance(state, Mapping):
        return dict(state)
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def split(state: Any) -> tuple[Any, dict[str, Any]]:
    """The state without the rows of its large memory, and these by `field/path`; empty ones are left out.

    Without such rows it is the state itself, and nothing.
    """
    memory = fields(state).get(MEMORY)
    rest = without_bulk(memory)
    if rest is memory:
        return state, {}
    kept = dict(_by_path(rest))
    rows = {f"{MEMORY}/{name}": x for name, x in _by_path(memory) if name not in kept and x.size}
    return replace_memory(state, rest), rows


def join(state: Any, abstract: Any, rows: Mapping[str, Any]) -> Any:
    """Inverse of `split`; `abstract` is the whole state as shapes."""
    memory = fields(abstract)[MEMORY]
    kept = dict(_by_path(fields(state)[MEMORY]))

    def leaf(name: str, x: jax.ShapeDtypeStruct) -> Any:
        if name in kept:
            return kept[name]
        return rows[f"{MEMORY}/{name}"] if x.size else jnp.zeros(x.shape, x.dtype, device=x.sharding)

    leaves = [leaf(name, x) for name, x in _by_path(memory)]
    return replace_memory(state, jax.tree.unflatten(jax.tree.structure(memory), leaves))


def replace_memory(state: Any, memory: Any) -> Any:
    """The state with another memory."""
    if isinstance(state, Mapping):
        return {**state, MEMORY: memory}
    return dataclasses.replace(state, **{MEMORY: memory})


def to_arrays(state: Any) -> dict[str, dict[str, Any]]:
    """Arrays by field and path; random keys as uint32 data; without empty arrays, which Orbax refuses.

    Raises:
      ValueError: two arrays have the same path.
    """
    trees = {
        field: {name: jax.random.key_data(x) if _is_key(x) else x for name, x in _by_path(tree) if x.size}
        for field, tree in fields(state).items()
    }
    return {field: arrays for field, arrays in trees.items() if arrays}


def flat(arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays by `field/path`."""
    return {f"{field}/{path}": x for field, tree in arrays.items() for path, x in tree.items()}


def expected_arrays(tree: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes that `to_arrays` returns for one field, from its abstract tree."""
    abstract = {}
    for name, x in _by_path(tree):
        data = jax.eval_shape(jax.random.key_data, x) if _is_key(x) else x
        if x.size:
            abstract[name] = jax.ShapeDtypeStruct(data.shape, data.dtype)
    return abstract


def rebuild(field: str, abstract: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuilds the tree of one field on its devices.

    Args:
      abstract: a tree of `jax.ShapeDtypeStruct`; without a sharding, an array goes to the default device.
      arrays: whole arrays by `field/path`, as `flat(to_arrays(state))` names them.
    """

    def leaf(name: str, x: jax.ShapeDtypeStruct) -> jax.Array:
        sharding = getattr(x, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        if not x.size:
            return jnp.zeros(x.shape, x.dtype, device=sharding)
        host = arrays[f"{field}/{name}"]
        # Each process puts its part on its own devices.
        array = jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
        return jax.random.wrap_key_data(array, impl=_key_impl(x)) if _is_key(x) else array

    return jax.tree.unflatten(jax.tree.structure(abstract), [leaf(name, x) for name, x in _by_path(abstract)])


def restore_state(folder: epath.Path, record: Record, abstract_state: Any) -> Any:
    """The state without the rows of a large memory; without any `memory` if it has to start empty.

    Arguments and errors are as of `Checkpointer.restore`.
    """
    abstract, rows = split(abstract_state)
    wanted = fields(abstract)
    compare = record.fields
    if MEMORY in wanted and (wanted[MEMORY] is None or (rows and record.memory is None)):
        wanted = {**wanted, MEMORY: None}
        compare = tuple(name for name in compare if name != MEMORY)
    restored = restore_fields(folder, record, wanted, compare)
    if dataclasses.is_dataclass(abstract):
        return dataclasses.replace(abstract, **restored)  # type: ignore[type-var]
    return restored


def with_memory(memories: MemoryItems, state: Any, record: Record, abstract_state: Any) -> Any:
    """The state with the rows of its large memory; with a `memory` of None, and a warning, if they are gone.

    Raises:
      CheckpointError: the rows do not fit, or cannot be reached.
    """
    _, abstract = split(abstract_state)
    if not abstract:
        return state
    rows = memories.read(record, abstract)
    if not isinstance(rows, str):
        return join(state, abstract_state, rows)
    log.warning("the memory of step %d is not in its checkpoint, %s: it starts empty", record.step, rows)
    return replace_memory(state, None)


def restore_fields(
    folder: epath.Path, record: Record, wanted: Mapping[str, Any], compare: Sequence[str]
) -> dict[str, Any]:
    """Restores the fields `wanted`, which must hold every stored array of the fields `compare`, and no other.

    Raises:
      CorruptCheckpoint: the files differ from the saved ones.
      CheckpointError: the arrays differ in name, shape or dtype.
    """
    expected = {
        f"{field}/{name}": array
        for field, tree in wanted.items()
        for name, array in expected_arrays(tree).items()
    }
    if lacking := {name.partition("/")[0] for name in expected} - set(record.fields):
        raise CheckpointError(
            f"the checkpoint of step {record.step} in {folder} was written by another version of "
            f"jaxrl: it has no {', '.join(sorted(lacking))}, it holds {', '.join(record.fields)}"
        )
    # Orbax would cast silently, or fail with pages of trees.
    if found := misfit(record.part(compare), expected):
        raise CheckpointError(f"the checkpoint of step {record.step} in {folder} {found}")
    arrays = checkpoint_folder.read_arrays(folder / str(record.step), record, wanted)
    return {name: rebuild(name, tree, arrays) for name, tree in wanted.items()}


def _by_path(tree: Any) -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf; the path of a random key ends with its implementation."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        named.append((f"{name}:{_key_impl(leaf)}" if _is_key(leaf) else name, leaf))
    if len(dict(named)) != len(named):
        raise ValueError("two leaves of the state have the same path: a dictionary key contains '/'")
    return named


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _key_impl(key: Any) -> str:
    """Name of the random number generator, also of an abstract key."""
    found: list[str] = []
    jax.eval_shape(lambda key: found.append(str(jax.random.key_impl(key))), key)
    return found[0]
