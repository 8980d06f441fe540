"""The interface of a recurrent core, and a stack of several as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.networks.layers import LayerNorm
from jaxrl.networks.operations import description_of
from jaxrl.types import Array, PyTree


class Core(nn.Module):
    """Carries memory from one step to the next.

    Built-in cores have a method `describe()`, which returns their `type`, the prefix of their `weights` and
    their sizes as JSON values, for exports that run without this package.

    Attributes:
      waits_for_the_carry: True if a matrix product of a step needs the result of the step before, so that
        the steps of a sequence can only be computed one after the other. Every core declares it.
      has_residual: True if the core normalises its input and adds it to its output by itself, so that
        `network.core_layers` of it are stacked as they are.
    """

    waits_for_the_carry: ClassVar[bool]
    has_residual: ClassVar[bool] = False

    def initial_carry(self, n: int) -> PyTree:
        """Zeros of [n, ...] by name, always float32; empty without memory."""
        raise NotImplementedError

    def __call__(self, x_LNF: Array, carry: PyTree, reset_LN: Array) -> tuple[Array, PyTree]:
        """(y_LNH in the compute dtype, the last carry), with a carry of zeros before steps of `reset_LN`."""
        raise NotImplementedError


class CoreStack(Core):
    """y_0 = core_0(x); y_i = y_{i-1} + core_i(norm_i(y_{i-1})), with layer normalisation.

    Cores that do both by themselves (`has_residual`) are only stacked. The carry has one part for each layer,
    `layer_0` and so on.

    Attributes:
      make: builds the core of a layer, unbound or within the module that calls it.
      norm_dtype: the type that the cores compute in.
      remat: True if the gradient of a layer computes it again, from what went into its norm.
    """

    waits_for_the_carry: ClassVar[bool] = True  # what its layers say, `core_waits` knows
    make: Callable[[], Core]
    layers: int
    norm_dtype: jnp.dtype = jnp.float32
    remat: bool = False

    @nn.nowrap  # builds cores that belong to nothing
    def initial_carry(self, n: int) -> PyTree:
        core = self.make()
        return {_name(i): core.initial_carry(n) for i in range(self.layers)}

    @nn.compact
    def parts(self) -> tuple[list[Core], list[LayerNorm]]:
        """The cores from the lowest to the highest, and the norm before each but the first, if any."""
        cores = [self.make() for _ in range(self.layers)]
        norms = 0 if cores[0].has_residual else self.layers - 1
        return cores, [LayerNorm(self.norm_dtype) for _ in range(norms)]

    def __call__(self, x_LNF: Array, carry: PyTree, reset_LN: Array) -> tuple[Array, PyTree]:
        cores, norms = self.parts()
        run = nn.remat(_run) if self.remat else _run
        after = {}
        y, after[_name(0)] = run(cores[0], None, x_LNF, carry[_name(0)], reset_LN)
        for i, core in enumerate(cores[1:], 1):
            norm = norms[i - 1] if norms else None
            added, after[_name(i)] = run(core, norm, y, carry[_name(i)], reset_LN)
            if norms and added.shape != y.shape:
                raise ConfigError(
                    f"`network.core_layers` (={self.layers}) adds layers up: the core must return as many "
                    f"features from {y.shape[-1]} as it was given, not {added.shape[-1]}"
                )
            y = y + added if norms else added
        return y, after

    def describe(self) -> dict[str, Any] | None:
        cores, norms = self.parts()
        layers = [description_of(core) for core in cores]
        if None in layers:
            return None
        return {"type": "stack", "layers": layers, "norms": [x for norm in norms for x in norm.describe()]}


def _run(core: Core, norm: LayerNorm | None, x: Array, carry: PyTree, reset: Array) -> tuple[Array, PyTree]:
    return core(x if norm is None else norm(x), carry, reset)


def _name(layer: int) -> str:
    return f"layer_{layer}"
