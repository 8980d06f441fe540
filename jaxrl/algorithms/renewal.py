"""Parameters sampled again in the middle of a run, such as new heads on a trunk that stays."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import optax

from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.minibatches import MinibatchState
from jaxrl.algorithms.optimizer_shards import OptimizerShards
from jaxrl.algorithms.parameters import fits, require_fit
from jaxrl.config import ConfigError
from jaxrl.types import PyTree


def renew(
    learner: MinibatchState,
    fresh: MinibatchState,
    patterns: tuple[str, ...],
    shards: OptimizerShards | None = None,
) -> MinibatchState:
    """The learner, with a fresh one's parameters for the names that fit a pattern.

    The mean of their gradients in Adam starts from 0. The mean of the squares stays: from 0, far from the
    first update of a run and without its correction, the first steps would be three times as long as usual.

    Args:
      patterns: of names such as `params/head/*`.
      shards: the layout of the optimiser's state; None: all of it is here.
    """
    old, unravel = jax.flatten_util.ravel_pytree(learner.policy.params)
    new, _ = jax.flatten_util.ravel_pytree(fresh.policy.params)
    is_new = fits(learner.policy.params, patterns)

    own = is_new if shards is None else shards.own(shards.pad(is_new))

    def forget(part: PyTree) -> PyTree:
        if not isinstance(part, optax.ScaleByAdamState):
            return part
        return part._replace(mu=jnp.where(own, 0.0, part.mu))

    is_adam = lambda x: isinstance(x, optax.ScaleByAdamState)  # noqa: E731
    return dataclasses.replace(
        learner,
        policy=dataclasses.replace(learner.policy, params=unravel(jnp.where(is_new, new, old))),
        opt_state=jax.tree.map(forget, learner.opt_state, is_leaf=is_adam),
    )


def require_renewable(algorithm: Algorithm, patterns: tuple[str, ...]) -> None:
    """Raises ConfigError if an algorithm cannot reinitialise parameters, or a pattern fits none."""
    if not issubclass(algorithm.state_type, MinibatchState):
        raise ConfigError(f"`fresh` is not offered by `algorithm` (={algorithm.name!r})")
    params: Any = jax.eval_shape(algorithm.agent.init_params, jax.random.key(0))
    require_fit("fresh", patterns, params)
