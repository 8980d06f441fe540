"""Values of a step of a rollout on the device: inputs, first states computed ahead, and packed records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from jaxrl.algorithms import Agent
from jaxrl.envs.base import TimeStep
from jaxrl.envs.scatters import apply, read
from jaxrl.types import Array, CollectorState, PyTree

# A leaf with more elements per environment than this is stored as a separate array: storing it takes longer
# than launching its kernel, and laying it out anew after the loop would take as long again. Nor is a larger
# value of first states kept over a rollout.
_LARGEST = 32
# Of the first states of one environment and step, what is kept over a rollout takes no more memory than the
# trajectory; in bytes.
_MOST_BYTES = 256


@flax.struct.dataclass
class StepInputs:
    """The inputs of a step [B, ...], or of all [T, B, ...].

    Attributes:
      noise: tree, of the actions.
      task: tree, of episodes that start in the step; None without a task sampler.
      starts: what `SplitStarts.ahead` computed of first states of episodes; None without `few_kernels`.
    """

    keys: Array
    noise: PyTree
    task: PyTree
    starts: PyTree


@flax.struct.dataclass
class RolloutLoop:
    """Where the environments are before a step, and with `few_kernels` what the step before left to do."""

    at: CollectorState
    final: FinalObservations | None


@flax.struct.dataclass
class FinalObservations:
    """Observations, and their action masks, whose value the next step computes: the last ones where `cut`."""

    obs: PyTree
    mask: Array | None
    cut: Array


def is_cut(timestep: TimeStep) -> Array:
    """bool[B], where an episode was truncated: the value of its last observation stands for the rest."""
    return timestep.truncated & ~timestep.terminated


def where_cut(cut: Array, tree: PyTree) -> PyTree:
    """Leaves [B, ...], 0 except if an episode was cut off."""
    return jax.tree.map(
        lambda x: jnp.where(cut.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros((), x.dtype)), tree
    )


def randomness(agent: Agent, keys_B: Array, index_B: Array, length: int) -> tuple[Array, PyTree]:
    """Keys of environments [T, B] and the action noise [T, B, ...] of a whole rollout, sampled at once."""
    env_keys_B, noise_keys_B = jax.vmap(jax.random.split, out_axes=1)(keys_B)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    env_keys_TB = jax.vmap(at, in_axes=(0, None), out_axes=1)(env_keys_B, jnp.arange(length))
    draw = lambda key, index: agent.draw_noise(key, (length,), index)  # noqa: E731
    return env_keys_TB, jax.vmap(draw, out_axes=1)(noise_keys_B, index_B)


def count_operations(jaxpr: Any) -> int:
    """The operations of a traced function, with those of the functions that it calls, loops once."""
    is_function = lambda part: isinstance(part, Jaxpr | ClosedJaxpr)  # noqa: E731
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=is_function):
            if is_function(part):
                total += count_operations(part.jaxpr if isinstance(part, ClosedJaxpr) else part)
    return total


@dataclass(frozen=True)
class SplitStarts:
    """`starts` of environments in two parts, with the same values.

    What takes little memory, the random part, is computed ahead of a rollout.

    Attributes:
      early: the numbers of operations on keys, tasks and results of one another whose results are small.
      late: of the others that depend on keys or tasks. Constants stay in place, where XLA knows them.
      kept: results of the early operations that others, or callers, need.
    """

    traced: ClosedJaxpr
    structure: Any
    early: frozenset[int]
    late: frozenset[int]
    kept: tuple[Var, ...]

    @classmethod
    def of(cls, starts: Callable[..., PyTree], keys_B: Array, task_B: PyTree) -> SplitStarts:
        """For keys and tasks of these shapes. If too much would be kept, nothing is computed ahead."""
        traced, shape = jax.make_jaxpr(starts, return_shape=True)(keys_B, task_B)
        jaxpr = traced.jaxpr
        count = len(keys_B)
        ready = set(jaxpr.invars)
        varying = set(jaxpr.invars)
        early, late = set(), set()
        needed: list[Var] = []
        for number, equation in enumerate(jaxpr.eqns):
            inputs = varying.intersection(_variables(equation.invars))
            if not inputs:
                continue
            varying |= set(equation.outvars)
            if inputs <= ready and all(x.aval.size <= _LARGEST * count for x in equation.outvars):
                early.add(number)
                ready |= set(equation.outvars)
            else:
                late.add(number)
                needed += _variables(equation.invars)
        needed += _variables(jaxpr.outvars)
        kept = tuple(x for x in dict.fromkeys(needed) if x in ready and x not in jaxpr.invars)
        shapes: list[Any] = [x.aval for x in kept]
        if sum(x.size * x.dtype.itemsize for x in shapes) > _MOST_BYTES * count:
            early, late, kept = set(), early | late, ()
        return cls(traced, jax.tree.structure(shape), frozenset(early), frozenset(late), kept)

    def ahead(self, keys_B: Array, task_B: PyTree) -> list[Array]:
        """The values that `finish` needs."""
        values = self._run(self.late, keys_B, task_B)
        return [values[x] for x in self.kept]

    def finish(self, kept: list[Array], keys_B: Array, task_B: PyTree) -> PyTree:
        """The first states, as `starts` returns them."""
        values = self._run(self.early, keys_B, task_B, zip(self.kept, kept, strict=True))
        return jax.tree.unflatten(self.structure, [read(values, x) for x in self.traced.jaxpr.outvars])

    def _run(
        self, without: frozenset[int], keys_B: Array, task_B: PyTree, kept: Iterable[tuple[Var, Array]] = ()
    ) -> dict[Var, Array]:
        """The values of all variables, except those of some operations."""
        jaxpr = self.traced.jaxpr
        values = dict(zip(jaxpr.constvars, self.traced.consts, strict=True)) | dict(kept)
        values |= zip(jaxpr.invars, jax.tree.leaves((keys_B, task_B)), strict=True)
        for number, equation in enumerate(jaxpr.eqns):
            if number not in without:
                operands = [read(values, x) for x in equation.invars]
                values |= zip(equation.outvars, apply(equation, operands), strict=True)
        return values


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [x for x in atoms if not isinstance(x, Literal)]


def is_small(x: Array) -> bool:
    """True if an array [B, ...] has few elements per environment."""
    return math.prod(x.shape[1:]) <= _LARGEST


@dataclass(frozen=True)
class _Leaf:
    """The place of a leaf: rows `first` to `last` of the array `name`, or all of it if `last` is None."""

    name: str
    first: int
    last: int | None
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Packing:
    """The arrangement of a tree of leaves [B, ...] in arrays [K, B], one for each dtype.

    Storing an array is a kernel on a GPU. Flags are stored as int32, which an action often is.
    """

    leaves: tuple[_Leaf, ...]
    structure: Any

    @classmethod
    def of(cls, tree: PyTree) -> Packing:
        """For trees of these shapes and dtypes."""
        shapes, structure = jax.tree.flatten(tree)
        rows: dict[str, int] = {}
        leaves = []
        for number, x in enumerate(shapes):
            name, first, last = f"leaf {number}", 0, None
            if is_small(x):
                name = _storage_dtype(x.dtype).name
                first = rows.get(name, 0)
                last = rows[name] = first + math.prod(x.shape[1:])
            leaves.append(_Leaf(name, first, last, x.shape[1:], x.dtype))
        return cls(tuple(leaves), structure)

    def pack(self, tree: PyTree) -> dict[str, Array]:
        """Arrays [K, B] by dtype, and large leaves as they are."""
        parts: dict[str, list[Array]] = {}
        for leaf, x in zip(self.leaves, jax.tree.leaves(tree), strict=True):
            part = x if leaf.last is None else x.reshape(len(x), -1).T.astype(_storage_dtype(leaf.dtype))
            parts.setdefault(leaf.name, []).append(part)
        return {name: part[0] if len(part) == 1 else jnp.concatenate(part) for name, part in parts.items()}

    def unpack(self, packed: dict[str, Array]) -> PyTree:
        """The tree of leaves [T, B, ...] from arrays [T, K, B] and large leaves [T, B, ...]."""

        def leaf_of(leaf: _Leaf) -> Array:
            x = packed[leaf.name]
            if leaf.last is None:
                return x
            rows = x[:, leaf.first : leaf.last].swapaxes(1, 2).astype(leaf.dtype)
            return rows.reshape(*rows.shape[:2], *leaf.shape)

        return jax.tree.unflatten(self.structure, [leaf_of(leaf) for leaf in self.leaves])


def _storage_dtype(dtype: Any) -> Any:
    return jnp.dtype(jnp.int32 if dtype == jnp.bool_ else dtype)
