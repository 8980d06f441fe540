"""The optimiser: global-norm clipping and Adam over ONE flat parameter vector, and its schedules."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxrl.config import Config
from jaxrl.networks.kernels.products import precision_of_products
from jaxrl.types import Array, PyTree

# Adam's epsilon of 1e-5, not 1e-8: Huang et al. 2022, detail 3.
ADAM_EPSILON = 1e-5
_DECAY, _SQUARE_DECAY = 0.9, 0.999  # of the moments, as optax has them


def learning_rate(
    base: Array, schedule: str, updates: Array, total: int, warmup: int, elapsed: Array | None = None
) -> Array:
    """The learning rate of the next update.

    Args:
      base: float32 scalar, the peak.
      schedule: "constant", "linear" (to 0) or "cosine" (to 0), after a linear warm-up.
      updates: int32 scalar, gradient steps made so far. Steps that a KL stop skipped do not count.
      total: planned gradient steps; beyond them the rate stays at its end.
      warmup: gradient steps of the warm-up.
      elapsed: float32 scalar, the share of a budget in seconds that is used up; the schedule follows that
        instead of `total`. None: it follows the updates.
    """
    return base * schedule_factor(schedule, updates, total, warmup, elapsed)


def schedule_factor(
    schedule: str, updates: Array, total: int, warmup: int = 0, elapsed: Array | None = None
) -> Array:
    """float32[]: the share of its peak that a number has at the next update; arguments of `learning_rate`."""
    done = updates.astype(jnp.float32)
    # A float: a run that is to end by time may plan more updates than an int32 counts.
    progress = elapsed
    if progress is None:
        progress = jnp.clip((done - warmup) / float(max(total - warmup, 1)), 0.0, 1.0)
    factor = {
        "constant": jnp.ones(()),
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + jnp.cos(jnp.pi * progress)),
    }[schedule]
    if warmup:
        factor = factor * jnp.minimum((done + 1) / warmup, 1.0)
    return factor


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


def descend(
    params: PyTree, gradient: PyTree, state: optax.OptState, max_grad_norm: Array, rate: Array, scale: Array
) -> tuple[PyTree, optax.OptState, Array]:
    """(parameters, state, norm) after the step that `optimizer` makes for the gradient times `scale`.

    For updates of large networks on small batches, where each pass over the parameters counts: factors that
    are the same for all of them are put together first, and each step has one division and one root.

    Args:
      params, gradient: trees of float32[...].
      state: of `optimizer`.
      max_grad_norm, rate, scale: float32[].

    Returns:
      `norm`, float32[]: the norm of the gradient times `scale`, before clipping.
    """
    first, adam, last = state
    norm = optax.tree.norm(gradient) * scale
    factor = scale * jnp.minimum(1.0, max_grad_norm / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))
    count = optax.safe_increment(adam.count)
    steps = count.astype(jnp.float32)
    step = rate / (1.0 - _DECAY**steps)
    root = jax.lax.rsqrt(1.0 - _SQUARE_DECAY**steps)
    mean = jax.tree.map(lambda m, g: _DECAY * m + (1.0 - _DECAY) * (g * factor), adam.mu, gradient)
    square = jax.tree.map(
        lambda v, g: _SQUARE_DECAY * v + (1.0 - _SQUARE_DECAY) * jnp.square(g * factor), adam.nu, gradient
    )
    params = jax.tree.map(
        lambda p, m, v: p - step * m / (jnp.sqrt(v) * root + ADAM_EPSILON), params, mean, square
    )
    return params, (first, adam._replace(count=count, mu=mean, nu=square), last), norm


def learning_precision(config: Config) -> contextlib.AbstractContextManager[Any]:
    """A context for an update: its gradients have the precision that the network's own products have."""
    return precision_of_products(config.network.matmul_precision)
