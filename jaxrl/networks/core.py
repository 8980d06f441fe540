"""The interface of a recurrent core."""

from __future__ import annotations

from typing import ClassVar

import flax.linen as nn

from jaxrl.types import Array, PyTree


class Core(nn.Module):
    """Carries memory from one step to the next.

    Built-in cores have a method `describe()`, which returns their `type`, the prefix of their `weights` and
    their sizes as JSON values, for exports that run without this package.

    Attributes:
      waits_for_the_carry: True if a matrix product of a step needs the result of the step before, so that
        the steps of a sequence can only be computed one after the other. Every core declares it.
      has_residual: True if the core normalises its input and adds it to its output by itself, so that
        `network.core_layers` of it are put on one another as they are.
    """

    waits_for_the_carry: ClassVar[bool]
    has_residual: ClassVar[bool] = False

    def initial_carry(self, n: int) -> PyTree:
        """Zeros of [n, ...] by name, always float32; empty without memory."""
        raise NotImplementedError

    def __call__(self, x_LNF: Array, carry: PyTree, reset_LN: Array) -> tuple[Array, PyTree]:
        """Runs over a sequence, zeroing the carry before every step where `reset_LN` is set.

        Returns:
          (y_LNH in the compute dtype, the carry after the last step).
        """
        raise NotImplementedError
