"""The section of behavioural cloning."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxrl.config.fields import at_least, at_most, between, field, one_of, with_default
from jaxrl.config.minibatches import MinibatchConfig

_MOST_VALIDATIONS = 1_000_000


@dataclasses.dataclass(frozen=True)
class BehaviorCloningConfig(MinibatchConfig):
    """Imitation of recorded episodes (docs/imitation.md).

    Environments are not stepped: `env.num_envs` lanes hold the episodes, one after the other.
    """

    collects: ClassVar[bool] = False

    rollout_length: int = with_default(
        MinibatchConfig,
        "rollout_length",
        1024,
        help="rows of each of the env.num_envs lanes, which together must hold the episodes",
    )
    num_epochs: int = with_default(
        MinibatchConfig, "num_epochs", 1, help="passes over the episodes between two validations"
    )
    num_minibatches: int = with_default(
        MinibatchConfig, "num_minibatches", 32, help="updates of each pass, each on other sequences"
    )
    sequence_length: int = with_default(MinibatchConfig, "sequence_length", 16)
    learning_rate: float = with_default(MinibatchConfig, "learning_rate", 3e-4)
    schedule: str = with_default(MinibatchConfig, "schedule", "constant")
    data: str = field("", help="folder of episodes (jaxrl record, jaxrl prepare-data)", fixed=True)
    validation: float = field(
        0.1,
        between(0, 0.9),
        help="share of the episodes that only validates; at least one, if not 0",
        fixed=True,
    )
    patience: int = field(
        3,
        at_least(0),
        at_most(_MOST_VALIDATIONS),
        help="consecutive validations without a better likelihood before learning ends, with "
        "the best parameters; 0: never",
        fixed=True,
    )
    class_weights: str = field(
        "none",
        one_of("none", "balanced"),
        help="balanced: every demonstrated action has the same total weight, however rare; "
        "for discrete actions",
    )
