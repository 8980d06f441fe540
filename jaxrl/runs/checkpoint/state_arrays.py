"""The training state as named arrays and back, independent of the classes that hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.types import PyTree


def fields(state: PyTree) -> dict[str, PyTree]:
    """The trees of a dataclass or mapping, by name."""
    if isinstance(state, Mapping):
        return dict(state)
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def stored(state: PyTree) -> dict[str, dict[str, Any]]:
    """Arrays by field and path; random keys as uint32 data; without empty arrays, which Orbax refuses.

    Raises:
      ValueError: two arrays have the same path.
    """
    trees = {
        field: {name: jax.random.key_data(x) if _is_key(x) else x for name, x in _named(tree) if x.size}
        for field, tree in fields(state).items()
    }
    return {field: arrays for field, arrays in trees.items() if arrays}


def flat(arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays by `field/path`."""
    return {f"{field}/{path}": x for field, tree in arrays.items() for path, x in tree.items()}


def is_part(name: str, fields: Iterable[str]) -> bool:
    """Whether the array `name` belongs to one of the fields, given as paths: `learner/policy`."""
    return any(name.startswith(f"{field}/") or name == field for field in fields)


def asked(tree: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes that `stored` gives for one field, from its abstract tree."""
    abstract = {}
    for name, x in _named(tree):
        data = jax.eval_shape(jax.random.key_data, x) if _is_key(x) else x
        if x.size:
            abstract[name] = jax.ShapeDtypeStruct(data.shape, data.dtype)
    return abstract


def rebuilt(field: str, abstract: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """Rebuilds the tree of one field on its devices.

    Args:
      field: its name.
      abstract: a tree of `jax.ShapeDtypeStruct`; without a sharding, an array goes to the default device.
      arrays: whole arrays by `field/path`, as `flat(stored(state))` names them.
    """

    def leaf(name: str, x: jax.ShapeDtypeStruct) -> jax.Array:
        sharding = getattr(x, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        if not x.size:
            return jnp.zeros(x.shape, x.dtype, device=sharding)
        host = arrays[f"{field}/{name}"]
        # Each process puts its part on its own devices.
        array = jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
        return jax.random.wrap_key_data(array, impl=_key_impl(x)) if _is_key(x) else array

    return jax.tree.unflatten(jax.tree.structure(abstract), [leaf(name, x) for name, x in _named(abstract)])


def _named(tree: PyTree) -> list[tuple[str, Any]]:
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
