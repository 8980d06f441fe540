"""Arrays without elements, which must not go into the part of a program that each device runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def shard_map(fn: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """`jax.shard_map`, but arrays without elements, arguments and constants, are made inside.

    XLA in jaxlib 0.11.2 ends the process (a segmentation fault) when it compiles a program for several
    devices in which one of these comes from outside, as they do in environments of XLand-MiniGrid.
    """

    @functools.wraps(fn)  # programs are called after it in profiles
    def mapped(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        specs = jax.tree.leaves(jax.tree.broadcast(in_specs, args, is_leaf=_is_spec), is_leaf=_is_spec)
        full = [i for i, x in enumerate(leaves) if not _is_empty(x)]

        def share(*given: Any) -> Any:
            found = dict(zip(full, given, strict=True))
            own = [
                found[i] if i in found else jnp.zeros(NamedSharding(mesh, spec).shard_shape(x.shape), x.dtype)
                for i, (x, spec) in enumerate(zip(leaves, specs, strict=True))
            ]
            return _with_own_constants(fn, *jax.tree.unflatten(structure, own))

        # check_vma=False: we sum the gradients ourselves, with a single psum per minibatch; with the check
        # on, JAX would insert another psum for every replicated parameter.
        part = jax.shard_map(
            share, mesh=mesh, in_specs=tuple(specs[i] for i in full), out_specs=out_specs, check_vma=False
        )
        return part(*(leaves[i] for i in full))

    return mapped


def _with_own_constants(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`, with constants without elements made in the traced program."""
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    constants = [jnp.zeros(x.shape, x.dtype) if _is_empty(x) else x for x in program.consts]
    results = jaxpr_as_fun(program.replace(consts=constants))(*jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _is_empty(x: Any) -> bool:
    return x.size == 0 and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_spec(x: Any) -> bool:
    return isinstance(x, P)
