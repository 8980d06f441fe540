"""Algorithms by the name in `config.algorithm`."""

from __future__ import annotations

from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.ppo.learning import PPO
from jaxrl.config import Config
from jaxrl.networks import Policy
from jaxrl.types import Axis, PyTree

_ALGORITHMS = {"ppo": PPO}


def build(config: Config, policy: Policy, axis: Axis) -> Algorithm:
    """The algorithm of a configuration, for one device of `axis`."""
    return _ALGORITHMS[config.algorithm](config, policy, axis)


def hyperparameters(config: Config) -> PyTree:
    """The numeric hyperparameters of a configuration's algorithm, float32 scalars."""
    return _ALGORITHMS[config.algorithm].hyperparameters(config)
