"""The interface of a recurrent core."""

from __future__ import annotations

from typing import ClassVar

import flax.linen as nn

from jaxrl.types import Array


class Core(nn.Module):
    """Carries memory from one step to the next.

    Built-in cores have a method `describe()`, which returns their `type`, the prefix of their `weights` and
    their `size` as JSON values, for exports that run without this package.

    Attributes:
      waits_for_the_carry: whether a matrix product of a step needs the result of the step before, so that
        the steps of a sequence can only be computed one after the other. Every core declares it.
    """

    waits_for_the_carry: ClassVar[bool]

    def initial_carry(self, n: int) -> dict[str, Array]:
        """Zeros of [n, H] by name, always float32; empty without memory."""
        raise NotImplementedError

    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Runs over a sequence, zeroing the carry before every step where `reset_LN` is set.

        Returns:
          (y_LNH in the compute dtype, the carry after the last step).
        """
        raise NotImplementedError
