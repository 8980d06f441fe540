"""Members of a population on accelerators: all of a device in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from jaxrl.population.placement import Placement
from jaxrl.types import PyTree


class MemberBatch:
    """A function of all members on a device as one program.

    Each call puts the members' arrays together and takes them apart again.
    """

    def __init__(self, placement: Placement, fn: Callable[..., PyTree], *arguments: PyTree) -> None:
        """Compiles nothing.

        Args:
          placement: of the members.
          fn: a function of [M, ...]: states, other values and numbers of iterations. A member with 0
            iterations does not change.
          arguments: the shapes of one member's.
        """
        self._placement = placement
        self._fn = fn
        self._arguments = arguments

    def trace(self) -> Any:
        """The program, as JAX traced it."""
        return self._placement.trace_members(self._fn, *self._arguments)

    def advance(self, compiled: Any, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Starts the program for some members; their results by member.

        Args:
          compiled: of `trace`.
          arguments: by member.
        """
        state, others, iterations = next(iter(arguments.values()))
        idle = dict.fromkeys(range(self._placement.rows), (state, others, jnp.zeros_like(iterations)))
        rows = self._placement.scatter(compiled(*self._placement.gather(idle | dict(arguments))))
        return {member: rows[member] for member in arguments}
