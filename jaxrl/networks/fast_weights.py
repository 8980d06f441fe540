"""The common part of cores with a matrix for each head: all but what is written and how fast it fades."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.layers import LayerNorm, orthogonal, per_block_orthogonal, residual_stream, weights_of
from jaxrl.types import Array

# Of the norms. Of what is read back it keeps how much was found: a read of nothing stays nearly nothing.
EPSILON = 1e-2
# A sequence of more than `_LONG` steps is cut into segments. The backward pass computes each again, from the
# carry before it, and needs the memory of one; its arrays stay in the cache, which pays for what is computed
# twice. Shorter sequences stay there as they are.
_LONG, _SEGMENT = 256, 128


class FastWeights(Core):
    """x + W_o (norm(y) * silu(z)), where y is read from a matrix for each head with a query.

    Queries, keys, values and the gate z are projections of the normalised input; y is divided by its root
    mean square in each head and scaled. A core of this form says by `remember` what its matrices hold.

    Attributes:
      kind: `network.core`.
    """

    waits_for_the_carry: ClassVar[bool] = True
    has_residual: ClassVar[bool] = True
    kind: ClassVar[str]
    size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> dict[str, Array]:
        width = self.size // self.heads
        return {"state": jnp.zeros((n, self.heads, width, width), jnp.float32)}

    def remember(
        self, u_LNF: Array, projected: tuple[Array, Array, Array], carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        """(y float32[L, N, heads, width], the carry after the last step).

        Args:
          u_LNF: the normalised input.
          projected: of it, for queries, keys and values: float32[L, N, heads, width] each.
          carry: before the first step.
          reset_LN: the carry counts as zeros before step t.
        """
        raise NotImplementedError

    @nn.compact
    def __call__(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        if len(reset_LN) <= _LONG:
            return self._segment(x_LNF, carry, reset_LN)
        whole = len(reset_LN) // _SEGMENT * _SEGMENT

        def segment(
            core: FastWeights, carry: dict[str, Array], inputs: tuple[Array, Array]
        ) -> tuple[dict[str, Array], Array]:
            y, carry = core._segment(inputs[0], carry, inputs[1])
            return carry, y

        again = nn.remat(segment, prevent_cse=False)
        scan = nn.scan(again, variable_broadcast="params", split_rngs={"params": False})
        x, reset = (x[:whole].reshape(-1, _SEGMENT, *x.shape[1:]) for x in (x_LNF, reset_LN))
        carry, y = scan(self, carry, (x, reset))
        y = y.reshape(whole, *y.shape[2:])
        if whole < len(reset_LN):
            carry, rest = again(self, carry, (x_LNF[whole:], reset_LN[whole:]))
            y = jnp.concatenate([y, rest])
        return y, carry

    def _segment(
        self, x_LNF: Array, carry: dict[str, Array], reset_LN: Array
    ) -> tuple[Array, dict[str, Array]]:
        size = self.size
        x = residual_stream(self, x_LNF, size, self.dtype)
        u = LayerNorm(self.dtype, name="norm")(x)
        weight = self.param("input", per_block_orthogonal(4), (size, 4 * size)).astype(self.dtype)
        *parts, gate = jnp.split(matmul(u, weight), 4, axis=-1)
        query, key, value = (part.reshape(*part.shape[:2], self.heads, -1) for part in parts)
        y, carry = self.remember(u, (query, key, value), carry, reset_LN)
        y = y * jax.lax.rsqrt(jnp.square(y).mean(axis=-1, keepdims=True) + EPSILON)
        y = y.reshape(*y.shape[:2], size) * self.param("scale", nn.initializers.ones, (size,))[None, None]
        y = (y * jax.nn.silu(gate)).astype(self.dtype)
        y = matmul(y, self.param("output", orthogonal(), (size, size)).astype(self.dtype))
        return (x + y).astype(self.dtype), carry

    def rates(self, u_LNF: Array, bias: nn.initializers.Initializer, count: int) -> list[Array]:
        """`count` numbers for each head, float32[L, N, heads] each: a projection of the input and a bias."""
        size, width = self.size, count * self.heads
        weight = self.param("rates", nn.initializers.normal(1 / math.sqrt(size)), (size, width))
        rates = matmul(u_LNF, weight.astype(self.dtype)) + self.param("bias", bias, (width,))[None, None]
        return jnp.split(rates, count, axis=-1)

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "heads": self.heads}
        return {"type": self.kind, "weights": weights_of(self), **sizes}
