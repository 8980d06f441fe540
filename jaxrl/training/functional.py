"""A whole training run as one pure function, to be jitted and vmapped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
from ml_collections import ConfigDict

from envs import registry
from jaxrl import networks
from jaxrl.config import Config, ConfigError, resolve
from jaxrl.training.iteration import Iteration
from jaxrl.types import Array, Axis, PyTree, TrainState


def make_train(config: ConfigDict | Config) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Returns `train(key, hyperparams=None) -> (state, metrics)`, a pure function for one device.

    `train` runs the whole of `stop.steps` and may be jitted and vmapped: over keys for a batch of seeds,
    over the algorithm's hyperparameters (`PPOHyperparams`) for a sweep. Metrics are [iterations] arrays,
    explained in docs/metrics.md; `episode/return` and `episode/length` are NaN where no episode ended. A run
    that meets a NaN continues with it (`nonfinite="skip"` drops such updates): one of many must not end the
    others.

    Raises:
      ConfigError: a field is unknown, of the wrong type or out of range.
    """
    if isinstance(config, ConfigDict):
        config = resolve(config, 1)
    config = dataclasses.replace(config, device_count=1)
    if registry.is_host(config.env.name):
        name = config.env.name
        raise ConfigError(f"`env.name` (={name!r}) runs on the host: make_train needs a device environment")
    env = registry.make(config.env.name, config.env.wrappers)
    axis = Axis(platform=jax.default_backend())
    policy = networks.build(config.network, env.spec, config.normalize)
    iteration = Iteration.build(config, env, policy, axis)
    algorithm = iteration.learning.algorithm

    def train(key: Array, hyperparams: PyTree = None) -> tuple[TrainState, dict[str, Array]]:
        state = iteration.init(key, hyperparams or algorithm.hyperparameters(config))
        state, metrics = jax.lax.scan(
            lambda state, _: iteration.iterate(state), state, length=config.num_iterations
        )
        return state, {name: metric.value() for name, metric in metrics.items()}

    return train
