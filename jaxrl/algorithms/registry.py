"""Algorithms by what `config.algorithm` says: a built-in or installed name, or `module:Class`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.base import Algorithm, require_offered
from jaxrl.config import Config, ConfigError
from jaxrl.config.algorithm import UnreadSection
from jaxrl.config.declarations import section_of
from jaxrl.envs.base import EnvSpec
from jaxrl.types import Axis, PyTree

# Imported when first used. Their sections are in `jaxrl/config/configuration.py`, under the same names.
_BUILT_IN = {
    "ppo": "jaxrl.algorithms.ppo.ppo:PPO",
    "a2c": "jaxrl.algorithms.a2c:A2C",
    "pqn": "jaxrl.algorithms.pqn:PQN",
    "dqn": "jaxrl.algorithms.dqn:DQN",
    "r2d2": "jaxrl.algorithms.r2d2:R2D2",
    "sac": "jaxrl.algorithms.sac.sac:SAC",
    "behavior_cloning": "jaxrl.algorithms.behavior_cloning.behavior_cloning:BehaviorCloning",
    "dagger": "jaxrl.algorithms.dagger.dagger:DAgger",
}


def build_agent(config: Config, spec: EnvSpec) -> Agent:
    """The agent that a configuration trains, for an environment.

    Raises:
      ConfigError: no network serves its spaces, or the algorithm does not offer what is configured.
    """
    algorithm = algorithm_class(config)
    require_offered(config, algorithm.offers)
    return algorithm.build_agent(config, spec)


def build(config: Config, agent: Agent, axis: Axis) -> Algorithm:
    """The algorithm of a configuration, for one device of `axis`; `agent` is of `build_agent`."""
    make: Callable[..., Algorithm] = algorithm_class(config)
    return make(config, agent, axis)


def hyperparameters(config: Config) -> PyTree:
    """The numeric hyperparameters of a configuration's algorithm, float32 scalars."""
    return algorithm_class(config).hyperparameters(config)


def algorithm_class(config: Config) -> type[Algorithm]:
    """The class of a configuration's algorithm.

    Raises:
      ConfigError: it comes from outside and is no algorithm, or its module must not be imported.
    """
    if isinstance(config.learner, UnreadSection):
        config.learner.refuse()
    if config.algorithm in _BUILT_IN:
        module, _, name = _BUILT_IN[config.algorithm].partition(":")
        return getattr(importlib.import_module(module), name)
    given = f"`algorithm` (={config.algorithm!r})"
    found = section_of(config.algorithm).owner
    if found is None or not issubclass(found, Algorithm):
        raise ConfigError(f"{given} must be a class that derives from jaxrl.algorithms.Algorithm")
    missing = sorted(found.__abstractmethods__)
    method = inspect.getattr_static(found, "hyperparameters")
    if method is vars(Algorithm)["hyperparameters"] and not hasattr(found, "hyperparams_type"):
        missing.append("hyperparams_type")
    if missing:
        raise ConfigError(
            f"{given}: {found.__name__} lacks {', '.join(missing)}, see jaxrl.algorithms.Algorithm"
        )
    return found
