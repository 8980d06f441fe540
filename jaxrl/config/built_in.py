"""The algorithms that come with this package: the name and the section of each, one line."""

from __future__ import annotations

from typing import Any, get_type_hints

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.imitation import BehaviorCloningConfig, DAggerConfig
from jaxrl.config.off_policy import DQNConfig, R2D2Config, SACConfig
from jaxrl.config.on_policy import A2CConfig, PPOConfig, PQNConfig


class BuiltInSections:
    """The sections of the built-in algorithms; `Config` has the chosen algorithm's section.

    The class of each algorithm is in `jaxrl/algorithms/registry.py`, under the same name.
    """

    ppo: PPOConfig
    a2c: A2CConfig
    pqn: PQNConfig
    dqn: DQNConfig
    r2d2: R2D2Config
    sac: SACConfig
    behavior_cloning: BehaviorCloningConfig
    dagger: DAggerConfig


BUILT_IN: dict[str, type[AlgorithmConfig]] = get_type_hints(BuiltInSections)
DEFAULT = "ppo"


def constant_of(name: str) -> Any:
    """The value of a former field, dotted, that is a constant of its section by now; None of other names."""
    section, _, attribute = name.rpartition(".")
    kind = BUILT_IN.get(section, AlgorithmConfig)
    return getattr(kind, attribute) if attribute in kind.constants else None
