"""Fast and forgetful memory: traces that fade, each with several frequencies that tell its age."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.core import Core
from jaxrl.networks.kernels.linear_recurrence import linear_recurrence
from jaxrl.networks.kernels.products import matmul
from jaxrl.networks.layers import layer_norm, orthogonal, weights_of
from jaxrl.types import Array, Carry

# At first contexts turn once in 1 to 1,024 steps, and traces forget half in 1 to 154 steps: a hundredth of
# the last is left after 1,024. The fastest decay is the one that the authors' sums in float64 allow.
_PERIOD = (1.0, 1024.0)
_DECAY = (0.673, math.log(100) / 1024)


class FFM(Core):
    """S_t = exp(-|alpha| + i omega) S_{t-1} + u_t 1^T, a row for each trace, a column for each context.

    Morad et al. 2023, "Reinforcement learning with fast and forgetful memory": the input is gated,
    u = l_1(x) sigmoid(l_2(x)); y = g LN(l_3(Re S, Im S)) + (1 - g) l_5(x) with g = sigmoid(l_4(x)). The norm
    has no parameters.

    Attributes:
      state_size: complex numbers of the state, traces times contexts.
      heads: contexts. With 128 numbers and 4 contexts the state has the size of the paper's.
    """

    waits_for_the_carry: ClassVar[bool] = False
    size: int
    state_size: int
    heads: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n: int) -> Carry:
        return {part: jnp.zeros((n, self.state_size), jnp.float32) for part in ("imaginary", "real")}

    @nn.compact
    def __call__(self, x_LNF: Array, carry: Carry, reset_LN: Array) -> tuple[Array, Carry]:
        size = self.size
        traces = self.state_size // self.heads
        faded = jnp.exp(-jnp.abs(self.param("decay", lambda _: jnp.linspace(*_DECAY, traces))))
        angle = self.param("angle", lambda _: 2 * math.pi / jnp.linspace(*_PERIOD, self.heads))
        a = tuple(jnp.outer(faded, turn).reshape(1, 1, -1) for turn in (jnp.cos(angle), jnp.sin(angle)))

        # l_1, l_2, l_4 and l_5 in one product.
        widths = (traces, traces, size, size)
        projected = self._linear("input", x_LNF, *widths)
        written, write, gate, skip = jnp.split(projected, [traces, 2 * traces, 2 * traces + size], axis=-1)
        u = jnp.repeat(written * jax.nn.sigmoid(write), self.heads, axis=-1)
        before = (carry["real"], carry["imaginary"])
        real, imaginary = linear_recurrence(a, (u, jnp.zeros_like(u)), before, reset_LN)

        z = self._linear("output", jnp.concatenate([real, imaginary], axis=-1), size)
        z = layer_norm(z, jnp.ones(size), jnp.zeros(size), 1)
        y = skip + jax.nn.sigmoid(gate) * (z - skip)
        return y.astype(self.dtype), {"real": real[-1], "imaginary": imaginary[-1]}

    def describe(self) -> dict[str, Any]:
        sizes = {"size": self.size, "state_size": self.state_size, "heads": self.heads}
        return {"type": "ffm", "weights": weights_of(self), **sizes}

    def _linear(self, name: str, x: Array, *widths: int) -> Array:
        """Layers of these widths beside each other, each with orthogonal weights."""

        def init(key: Array) -> Array:
            keys = jax.random.split(key, len(widths))
            blocks = [orthogonal()(k, (x.shape[-1], w)) for k, w in zip(keys, widths, strict=True)]
            return jnp.concatenate(blocks, axis=-1)

        weight = self.param(name, init)
        bias = self.param(f"{name}_bias", nn.initializers.zeros, (sum(widths),))
        return matmul(x.astype(self.dtype), weight.astype(self.dtype)) + bias[None, None]
