"""The optimiser: clipping and Adam over ONE vector of parameters, its schedules, and parameters by name."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl.algorithms.agent import Agent
from jaxrl.config import Config, ConfigError
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.networks.kernels.products import precision_of_products
from jaxrl.types import Array, Axis, LearnerState, PyTree

# Adam's epsilon of 1e-5, not 1e-8: Huang et al. 2022, detail 3.
ADAM_EPSILON = 1e-5
_DECAY, _SQUARE_DECAY = 0.9, 0.999  # of the moments, as optax has them


def schedule_factor(
    schedule: str, updates: Array, total: Array, warmup: int = 0, elapsed: Array | None = None
) -> Array:
    """float32[]: the share of its peak that a number, such as the learning rate, has at the next update.

    Args:
      schedule: "constant", "linear" (to 0) or "cosine" (to 0), after a linear warm-up.
      updates: int32 scalar, gradient steps made so far. Steps that a KL stop skipped do not count.
      total: float32 scalar, planned gradient steps; beyond them the factor stays at its end.
      warmup: gradient steps of the warm-up.
      elapsed: float32 scalar, the share of a budget in seconds that is used up; the schedule follows that
        instead of `total`. None: it follows the updates.
    """
    done = updates.astype(jnp.float32)
    progress = elapsed
    if progress is None:
        progress = jnp.clip((done - warmup) / jnp.maximum(total - warmup, 1.0), 0.0, 1.0)
    factor = {
        "constant": jnp.ones(()),
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + jnp.cos(jnp.pi * progress)),
    }[schedule]
    if warmup:
        factor = factor * jnp.minimum((done + 1) / warmup, 1.0)
    return factor


def planned_updates(config: Config, learner: LearnerState) -> Array:
    """float32[]: the gradient steps that the run plans, which may be more than an int32 counts."""
    return jnp.float32(config.total_updates) if learner.planned is None else learner.planned


def optimizer(
    max_grad_norm: Array | float, rate: Array | float, norm: Array | None = None
) -> optax.GradientTransformation:
    """Clips by the global norm (never elementwise), then Adam. Its arguments may be traced.

    Args:
      max_grad_norm: the gradient is scaled down to this norm.
      rate: the learning rate; or one for each parameter.
      norm: float32[], of the whole gradient, if the optimiser is given a part of it; None: it is given all.
    """
    clip = optax.clip_by_global_norm(max_grad_norm)
    if norm is not None:
        scale = jnp.where(norm < max_grad_norm, 1.0, max_grad_norm / norm)
        clip = optax.stateless(lambda gradient, _: jax.tree.map(lambda x: x * scale, gradient))
    chain = optax.chain(clip, optax.scale_by_adam(eps=ADAM_EPSILON), optax.scale_by_learning_rate(rate))

    def update(
        gradient: PyTree, state: PyTree, params: PyTree | None = None
    ) -> tuple[PyTree, optax.OptState]:
        # optax raises a float to an integer power, even if the program around it forbids that.
        with jax.numpy_dtype_promotion("standard"):
            return chain.update(gradient, state, params)

    return optax.GradientTransformation(chain.init, update)


@flax.struct.dataclass
class Gradient:
    """The gradient of a sum, and the factor that makes it that of the mean.

    Attributes:
      of_sum: a tree like the parameters.
      scale: float32[].
      norm: float32[], of the mean's gradient.
    """

    of_sum: PyTree
    scale: Array
    norm: Array

    @classmethod
    def of(cls, of_sum: PyTree, scale: Array) -> Gradient:
        return cls(of_sum, scale, optax.tree.norm(of_sum) * scale)


def descend(
    params: PyTree, gradient: Gradient, state: optax.OptState, max_grad_norm: Array, rate: Array, made: Array
) -> tuple[PyTree, optax.OptState]:
    """(parameters, state) after the step that `optimizer` makes, or as they were if not `made` (bool[]).

    For updates of large networks on small batches, where each pass over the parameters counts: factors that
    are the same for all of them are put together first, and each step has one division and one root. `state`
    is of `optimizer`; all arrays are float32.
    """
    first, adam, last = state
    tiny = jnp.finfo(jnp.float32).tiny
    factor = gradient.scale * jnp.minimum(1.0, max_grad_norm / jnp.maximum(gradient.norm, tiny))
    count = optax.safe_increment(adam.count)
    steps = count.astype(jnp.float32)
    step = rate / (1.0 - _DECAY**steps)
    root = jax.lax.rsqrt(1.0 - _SQUARE_DECAY**steps)

    def of_mean(m: Array, g: Array) -> Array:
        return jnp.where(made, _DECAY * m + (1.0 - _DECAY) * (g * factor), m)

    def of_square(v: Array, g: Array) -> Array:
        return jnp.where(made, _SQUARE_DECAY * v + (1.0 - _SQUARE_DECAY) * jnp.square(g * factor), v)

    def of_param(p: Array, m: Array, v: Array) -> Array:
        return jnp.where(made, p - step * m / (jnp.sqrt(v) * root + ADAM_EPSILON), p)

    of_sum = gradient.of_sum
    moments = jax.tree.map(of_mean, adam.mu, of_sum), jax.tree.map(of_square, adam.nu, of_sum)
    # Else XLA for CPU computes the moments anew for the parameters, and copies what it then still needs.
    barrier = jax.lax.optimization_barrier
    mean, square = jax.lax.platform_dependent(moments, cpu=barrier, default=lambda moments: moments)
    params = jax.tree.map(of_param, params, mean, square)
    adam = adam._replace(count=jnp.where(made, count, adam.count), mu=mean, nu=square)
    return params, (first, adam, last)


def learning_precision(config: Config) -> contextlib.AbstractContextManager[Any]:
    """A context for an update: its gradients have the precision that the network's own products have."""
    return precision_of_products(config.network.matmul_precision)


# Parameters from which `auto` divides: the moments of fewer take less than 8 MiB of a device, for which an
# exchange more in each minibatch, with its own latency, is not worth it.
_LEAST_PARAMETERS = 2**20
# Numbers of a part come in tiles of so many: XLA for TPUs makes all-reduces of exchanges of odd parts, and
# adds permutations to a reduce-scatter of fewer.
_TILE = 2048


@dataclass(frozen=True)
class OptimizerShards:
    """The layout of vectors of parameters in the optimiser: all of them on every device, or a part on each.

    With parts, gradients are summed by a reduce-scatter, each device updates its part with its part of Adam's
    moments, and an all-gather makes the parameters whole again: stage 1 of ZeRO (Rajbhandari et al. 2020,
    "ZeRO: Memory optimizations toward training trillion parameter models", section 5.1). Both exchanges
    together move as many bytes as the all-reduce in their place; a device holds the moments of P / devices
    parameters, not of P.

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
        if self.axis.platform != "tpu":
            # Split, so that its gradient is a concatenation: XLA for CPU takes twenty times as long for a sum
            # of padded leaves.
            split = jax.flatten_util.ravel_pytree(params)[1]
            return lambda vector: split(vector[: self.count])
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


def fits(params: PyTree, patterns: tuple[str, ...]) -> Array:
    """bool[P], True for the parameters, as one vector, whose names fit one of the patterns."""

    def leaf(path: Any, x: Array) -> Array:
        name = parameter_name(path)
        return jnp.full(x.shape, any(fnmatch.fnmatch(name, pattern) for pattern in patterns))

    return jax.flatten_util.ravel_pytree(jax.tree_util.tree_map_with_path(leaf, params))[0]


def parameter_name(path: Any) -> str:
    """The name under which users know a parameter: `params/MLP_0/Dense_0/kernel`."""
    return f"params/{jax.tree_util.keystr(path, simple=True, separator='/')}"


def require_fit(field: str, patterns: tuple[str, ...], params: PyTree) -> None:
    """Raises ConfigError if one of the patterns that `field` gives fits no parameter."""
    names = [parameter_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(f"`{field}` (={pattern!r}) fits no parameter: {', '.join(names)}")


def layer_norms(gradient: PyTree) -> dict[str, Array]:
    """float32[] by `grad/norm/LAYER`: norms over the arrays of each layer, named as in the parameters."""
    squares: dict[str, Array] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        total = jnp.sum(jnp.square(leaf.astype(jnp.float32)))
        squares[f"grad/norm/{name}"] = squares.get(f"grad/norm/{name}", jnp.float32(0)) + total
    return {name: jnp.sqrt(x) for name, x in squares.items()}
