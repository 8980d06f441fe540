"""Hyperparameters: those that are numbers of a program, and their change while a run trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms import Algorithm
from jaxrl.config import Config, ConfigError, declared_fields
from jaxrl.config.errors import did_you_mean
from jaxrl.parallel.sharding import Topology
from jaxrl.types import LearnerState, PyTree, TrainState

_RATE = "learning_rate"


def program_shape(config: Config) -> Config:
    """The part that members of one program have in common: all but seed and numeric hyperparameters."""
    learner = config.learner
    numbers = [field.name for field in dataclasses.fields(algorithms.hyperparameters(config))]
    same = {name: 0.0 for name in numbers if getattr(learner, name) is not None}
    alike: Any = dataclasses.replace(learner, **same)  # type: ignore[type-var]
    return dataclasses.replace(config, seed=0, learner=alike)


def with_changed_numbers(
    algorithm: Algorithm, topology: Topology, state: TrainState, before: Config, after: Config
) -> TrainState:
    """Returns `state` with the hyperparameters in which two configurations differ.

    The others stay the state's own: `Trainer.set` may have changed them, and the members of a population have
    numbers that no configuration knows.
    """

    def choose(own: jax.Array, then: jax.Array, now: jax.Array) -> jax.Array:
        replicated: jax.Array = topology.replicate(now)
        return own if then == now else replicated

    numbers: PyTree = jax.tree.map(
        choose, state.learner.hyperparams, algorithm.hyperparameters(before), algorithm.hyperparameters(after)
    )
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparams=numbers))


def with_numbers_of(
    config: Config, topology: Topology, state: TrainState, names: Collection[str]
) -> TrainState:
    """Returns `state` with the planned updates of `config`, and its hyperparameters among `names`, dotted."""
    given = algorithms.hyperparameters(config)
    own = state.learner.hyperparams
    chosen = [field.name for field in dataclasses.fields(own) if f"{config.section}.{field.name}" in names]
    numbers = {name: topology.replicate(np.asarray(getattr(given, name))) for name in chosen}
    learner = dataclasses.replace(state.learner, hyperparams=dataclasses.replace(own, **numbers))
    return dataclasses.replace(state, learner=_with_planned(config, topology, learner))


def with_hyperparameters(
    config: Config, algorithm: Algorithm, topology: Topology, state: TrainState, values: Mapping[str, float]
) -> TrainState:
    """Returns `state` with other hyperparameters of the algorithm.

    Args:
      values: by name, such as `learning_rate`; that is exactly the rate of the next update, from which a
        schedule continues as it would, and during a warm-up the rate at its end.

    Raises:
      ConfigError: there is no such hyperparameter, its field does not allow the value, or its schedule has
        come to its end.
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
    if _RATE in arrays:
        learner = _with_exact_rate(config.section, algorithm, topology, learner)
    return dataclasses.replace(state, learner=learner)


def _with_exact_rate(
    section: str, algorithm: Algorithm, topology: Topology, learner: LearnerState
) -> LearnerState:
    """With a peak such that the rate of the next update is the one that the hyperparameters say now."""
    numbers: PyTree = learner.hyperparams
    wanted = float(getattr(numbers, _RATE))
    rate = algorithm.scheduled_values(learner).get("learning rate", wanted)
    if rate == wanted or _is_warming_up(algorithm, learner, rate):
        return learner
    if rate == 0:
        raise ConfigError(
            f"`{section}.{_RATE}` (={wanted:g}) must stay 0: the schedule of the run has come to its "
            f"end; `{section}.schedule` constant has none"
        )
    peak = topology.replicate(np.float32(wanted * (wanted / rate)))
    return dataclasses.replace(learner, hyperparams=dataclasses.replace(numbers, **{_RATE: peak}))


def _is_warming_up(algorithm: Algorithm, learner: LearnerState, rate: float) -> bool:
    """True if the rate rises from one update to the next: with another peak it would pass the one set."""
    after = dataclasses.replace(learner, updates=learner.updates + 1)
    return algorithm.scheduled_values(after)["learning rate"] > rate


def with_budget(config: Config, topology: Topology, learner: LearnerState, seconds: float) -> LearnerState:
    """Returns `learner` with what schedules follow: the planned updates, or the share of `stop.seconds` used.

    `seconds` are of training over all processes of the run, as `stop.seconds` counts them.
    """
    budget = config.stop.seconds
    if not config.follows_clock or budget is None:
        return _with_planned(config, topology, learner)
    share = topology.replicate(np.float32(min(seconds / budget, 1.0)))
    return dataclasses.replace(learner, elapsed=share)


def _with_planned(config: Config, topology: Topology, learner: LearnerState) -> LearnerState:
    if config.follows_clock:
        return learner
    return dataclasses.replace(learner, planned=topology.replicate(np.float32(config.total_updates)))
