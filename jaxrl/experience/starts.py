"""First states of episodes, computed ahead of a rollout as far as the results are small: the random part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal, Var

from jaxrl.envs.scatters import apply, read
from jaxrl.types import Array, PyTree

# Of the values of one environment and step that are kept over a rollout: bytes of all, so that they take no
# more memory than the trajectory, and elements of each.
_MOST_BYTES = 256
_MOST_ELEMENTS = 32


@dataclass(frozen=True)
class SplitStarts:
    """`starts` of environments in two parts, with the same values.

    Attributes:
      traced: all of it.
      structure: of its results.
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
            if inputs <= ready and all(x.aval.size <= _MOST_ELEMENTS * count for x in equation.outvars):
                early.add(number)
                ready |= set(equation.outvars)
            else:
                late.add(number)
                needed += _variables(equation.invars)
        needed += _variables(jaxpr.outvars)
        kept = tuple(x for x in dict.fromkeys(needed) if x in ready and x not in jaxpr.invars)
        if sum(map(_bytes, kept)) > _MOST_BYTES * count:
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


def _bytes(x: Any) -> int:
    size: int = x.aval.size * x.aval.dtype.itemsize
    return size


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [x for x in atoms if not isinstance(x, Literal)]
