"""The training state as named arrays and back, independent of the classes that hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.parallel.bulk import without_bulk

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


def is_part(name: str, fields: Iterable[str]) -> bool:
    """True if the array `name` belongs to one of the `fields`, paths such as `learner/policy`."""
    return any(name.startswith(f"{field}/") or name == field for field in fields)


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
