"""Recurrent PPO in one compiled program.

`load_config` gives a shipped configuration or a file's. `Trainer`, `make_train` and `make_population`
(over `hyperparameters`) train, `search.optimize` searches values of a configuration, `load` gives a trained
policy that acts, `Client` asks one that `jaxrl serve` serves, and `Box`, `Discrete`, `EnvSpec`, `InfoMetric`,
`JaxEnv`, `TimeStep`, `Wrapper` are what a custom environment consists of; `check_env` and `check_core`
check an environment and a core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl import search
    from jaxrl.config import ConfigError, default_config
    from jaxrl.config.errors import RunError
    from jaxrl.config.files import load_config
    from jaxrl.config.version import __version__
    from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, MultiDiscrete, TimeStep
    from jaxrl.envs.env_check import check_env
    from jaxrl.envs.wrappers.wrapper import ObservationWrapper, Wrapper
    from jaxrl.experience.curriculum.stage_curriculum import StageCurriculum
    from jaxrl.inference.loaded_policy import load
    from jaxrl.inference.serving.client import Client
    from jaxrl.networks.core_check import check_core
    from jaxrl.population.make_population import make_population
    from jaxrl.programs.device_runtime import hyperparameters, make_train
    from jaxrl.training.callbacks import Callbacks
    from jaxrl.training.trainer import Trainer

__all__ = [
    "Box",
    "Callbacks",
    "Client",
    "ConfigError",
    "Dict",
    "Discrete",
    "EnvSpec",
    "InfoMetric",
    "JaxEnv",
    "MultiDiscrete",
    "ObservationWrapper",
    "RunError",
    "StageCurriculum",
    "TimeStep",
    "Trainer",
    "Wrapper",
    "__version__",
    "check_core",
    "check_env",
    "default_config",
    "hyperparameters",
    "load",
    "load_config",
    "make_population",
    "make_train",
    "search",
]

# Loaded when first used: the command line must answer bad input before jax is imported.
_HOMES = {
    "Callbacks": "jaxrl.training.callbacks",
    "ObservationWrapper": "jaxrl.envs.wrappers.wrapper",
    "Wrapper": "jaxrl.envs.wrappers.wrapper",
    "Client": "jaxrl.inference.serving.client",
    "ConfigError": "jaxrl.config",
    "RunError": "jaxrl.config.errors",
    "StageCurriculum": "jaxrl.experience.curriculum.stage_curriculum",
    "Trainer": "jaxrl.training.trainer",
    "__version__": "jaxrl.config.version",
    "check_core": "jaxrl.networks.core_check",
    "default_config": "jaxrl.config",
    "hyperparameters": "jaxrl.programs.device_runtime",
    "load": "jaxrl.inference.loaded_policy",
    "load_config": "jaxrl.config.files",
    "make_population": "jaxrl.population.make_population",
    "make_train": "jaxrl.programs.device_runtime",
}
_OF_ENVIRONMENTS = ("Box", "Dict", "Discrete", "EnvSpec", "JaxEnv", "MultiDiscrete", "InfoMetric", "TimeStep")


def __getattr__(name: str) -> Any:
    if name in _OF_ENVIRONMENTS:
        from jaxrl.envs import base

        return getattr(base, name)
    if name == "check_env":
        from jaxrl.envs.env_check import check_env

        return check_env
    if name == "search":
        return importlib.import_module("jaxrl.search")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
