"""Hyperparameters that are changed while a run trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxrl.config import Config, ConfigError, declared_fields
from jaxrl.config.errors import did_you_mean
from jaxrl.parallel.sharding import Topology
from jaxrl.types import PyTree, TrainState


def with_hyperparameters(
    config: Config, topology: Topology, state: TrainState, values: Mapping[str, float]
) -> TrainState:
    """Returns `state` with other hyperparameters of the algorithm.

    Args:
      config: the resolved configuration.
      topology: the devices that hold the state.
      state: before an iteration.
      values: by name, such as `learning_rate`; with a schedule that is the rate from which it falls.

    Raises:
      ConfigError: there is no such hyperparameter, or its field does not allow the value.
    """
    hyperparams: PyTree = state.learner.hyperparams
    known = [field.name for field in dataclasses.fields(hyperparams)]
    arrays = {}
    for name, value in values.items():
        field = f"{config.section}.{name}"
        if name not in known:
            hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
            raise ConfigError(f"`{name}` is no hyperparameter of {config.algorithm}{hint}")
        if value is None or getattr(config.learner, name) is None:
            raise ConfigError(f"`{field}` can be switched on or off only in the configuration")
        number = declared_fields(config.algorithm)[field].check(value)
        arrays[name] = topology.replicate(np.float32(number))
    learner = dataclasses.replace(state.learner, hyperparams=dataclasses.replace(hyperparams, **arrays))
    return dataclasses.replace(state, learner=learner)
