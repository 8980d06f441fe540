"""Parameters by name: which are frozen or have their own rates, and norms by layer."""

from __future__ import annotations

import fnmatch
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.types import Array, PyTree


def fits(params: PyTree, patterns: tuple[str, ...]) -> Array:
    """bool[P], True for the parameters, as one vector, whose names fit one of the patterns."""

    def leaf(path: Any, x: Array) -> Array:
        name = parameter_name(path)
        return jnp.full(x.shape, any(fnmatch.fnmatch(name, pattern) for pattern in patterns))

    return jax.flatten_util.ravel_pytree(jax.tree_util.tree_map_with_path(leaf, params))[0]


def parameter_name(path: Any) -> str:
    """The name under which users know a parameter: `params/MLP_0/Dense_0/kernel`."""
    return f"params/{jax.tree_util.keystr(path, simple=True, separator='/')}"


def require_fit(field: str, patterns: tuple[str, ...], params: PyTree) -> None:
    """Raises ConfigError if one of the patterns that `field` gives fits no parameter."""
    names = [parameter_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(f"`{field}` (={pattern!r}) fits no parameter: {', '.join(names)}")


def layer_norms(gradient: PyTree) -> dict[str, Array]:
    """float32[] by `grad/norm/LAYER`: norms over the arrays of each layer, named as in the parameters."""
    squares: dict[str, Array] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        total = jnp.sum(jnp.square(leaf.astype(jnp.float32)))
        squares[f"grad/norm/{name}"] = squares.get(f"grad/norm/{name}", jnp.float32(0)) + total
    return {name: jnp.sqrt(x) for name, x in squares.items()}
