"""The optimiser's share of the parameters: all of them on every device, or a part on each.

With parts, gradients are summed by a reduce-scatter, each device updates its part with its part of Adam's
moments, and an all-gather makes the parameters whole again: stage 1 of ZeRO (Rajbhandari et al. 2020, "ZeRO:
Memory optimizations toward training trillion parameter models", section 5.1). Both exchanges together move as
many bytes as the all-reduce in their place; a device holds the moments of P / devices parameters, not of P.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.agent import Agent
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.types import Array, Axis, PyTree

# Parameters from which `auto` divides: the moments of fewer take less than 8 MiB of a device, for which an
# exchange more in each minibatch, with its own latency, is not worth it.
_LEAST_PARAMETERS = 2**20
# Numbers of a part come in tiles of so many: XLA for TPUs makes all-reduces of exchanges of odd parts, and
# adds permutations to a reduce-scatter of fewer.
_TILE = 2048


@dataclass(frozen=True)
class OptimizerShards:
    """The layout of vectors of parameters in the optimiser.

    Attributes:
      count: P, the number of parameters.
      sharded: True if each device has a part of the vector, False if each has all of it.
    """

    axis: Axis
    count: int
    sharded: bool

    @classmethod
    def of(cls, section: MinibatchConfig, axis: Axis, count: int) -> OptimizerShards:
        """The layout that `shard_optimizer` asks for."""
        wanted = section.shard_optimizer
        pays = wanted == "on" or (wanted == "auto" and count >= _LEAST_PARAMETERS)
        return cls(axis, count, axis.size > 1 and pays)

    @classmethod
    def of_agent(cls, section: MinibatchConfig, axis: Axis, agent: Agent) -> OptimizerShards | None:
        """The layout for an agent's parameters; None if every device has all of the vector."""
        if axis.size == 1 or section.shard_optimizer == "off":
            return None
        params = jax.eval_shape(agent.init_params, jax.random.key(0))
        found = cls.of(section, axis, sum(math.prod(x.shape) for x in jax.tree.leaves(params)))
        return found if found.sharded else None

    def pad(self, vector: Array) -> Array:
        """[P] with zeros behind, so that every device has an equal part."""
        return jnp.pad(vector, (0, self._padded - self.count)) if self.sharded else vector

    def unravel(self, params: PyTree) -> Callable[[Array], PyTree]:
        """A function that makes a tree like `params` of a padded vector."""
        if not self.sharded and self.axis.platform != "tpu":
            return jax.flatten_util.ravel_pytree(params)[1]
        leaves, structure = jax.tree.flatten(params)
        offsets = np.cumsum([0, *(x.size for x in leaves)])

        def tree(vector: Array) -> PyTree:
            # Without the barrier XLA for TPUs (jax 0.10) may reshape the whole vector as a narrow leaf,
            # [n, 2], whose rows it pads to 128 numbers, and slice that.
            parts = jax.lax.optimization_barrier([vector[i:j] for i, j in itertools.pairwise(offsets)])
            shaped = [part.reshape(x.shape) for part, x in zip(parts, leaves, strict=True)]
            return jax.tree.unflatten(structure, shaped)

        return tree

    def own(self, vector: Array) -> Array:
        """This device's part of a padded vector that every device has: [padded / devices], or all of it."""
        if not self.sharded:
            return vector
        return vector.reshape(self.axis.size, -1)[self.axis.index()]

    def empty(self) -> Array:
        """float32, zeros as `own` returns them; needs no mesh."""
        return jnp.zeros(self._padded // self.axis.size if self.sharded else self.count)

    def whole(self, own: Array) -> Array:
        """Inverse of `own`."""
        return self.axis.all_gather(own) if self.sharded else own

    @property
    def _padded(self) -> int:
        return -(-self.count // (self.axis.size * _TILE)) * self.axis.size * _TILE
