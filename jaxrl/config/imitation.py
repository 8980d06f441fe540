"""The sections of the algorithms that imitate: behavioural cloning and DAgger."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import above, at_least, between, bounds, field, one_of, with_default
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.config.replay import MemoryConfig

SOLVER = "solver"  # a teacher of DAgger
_MOST_VALIDATIONS = 1_000_000
_MOST_ROWS = 100_000  # of one sequence


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
    # The updates of an iteration are the steps of the clock, which must not change under a run.
    num_epochs: int = with_default(
        MinibatchConfig, "num_epochs", 1, help="passes over the episodes between two validations", fixed=True
    )
    num_minibatches: int = with_default(
        MinibatchConfig,
        "num_minibatches",
        32,
        help="updates of each pass, each on other sequences",
        fixed=True,
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
        *bounds(0, _MOST_VALIDATIONS),
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


@dataclasses.dataclass(frozen=True)
class DAggerConfig(MemoryConfig):
    """Imitation on the learner's own episodes (Ross et al. 2011).

    A teacher labels every step of them (docs/imitation.md).
    """

    rollout_length: int = with_default(MemoryConfig, "rollout_length", 32)
    updates_per_rollout: int = with_default(MemoryConfig, "updates_per_rollout", 16)
    batch_size: int = with_default(
        MemoryConfig, "batch_size", 32, help="sequences of an update, over all devices"
    )
    capacity: int = with_default(
        MemoryConfig,
        "capacity",
        50_000,
        help="labelled steps kept from all environments, rounded down to whole rollouts; then "
        "the oldest are dropped",
    )
    teacher: str = field(
        "",
        help="labels every step with the right action: a run folder, whose policy has the "
        "learner's network, or solver, if the environment has one",
        fixed=True,
    )
    beta: float = field(1.0, between(0, 1), help="share of the actions that are the teacher's, at the start")
    beta_fraction: float = field(
        0.1, between(0, 1), help="share of the run in which beta falls linearly to 0"
    )
    trace_length: int = field(
        16,
        *bounds(1, _MOST_ROWS),
        help="steps of each sequence that are learnt from; divides rollout_length",
        fixed=True,
    )
    burn_in: int = field(
        16, *bounds(0, _MOST_ROWS), help="earlier steps that only renew the stored carry", fixed=True
    )
    learning_rate: float = field(1e-3, at_least(0), help="learning rate of Adam")
    max_grad_norm: float = field(0.5, above(0), help="the gradient is scaled down to this norm")

    @property
    def window(self) -> int:
        """Steps of a sequence, with its burn-in."""
        return self.burn_in + self.trace_length

    def carry_interval(self, num_envs: int) -> int:
        return self.trace_length

    def steps_per_update(self, num_envs: int) -> int:
        return self.batch_size * self.trace_length

    def check_sizes(self, name: str, num_envs: int) -> None:
        if self.rollout_length % self.trace_length:
            raise ConfigError(
                f"`{name}.trace_length` (={self.trace_length}) must divide `{name}.rollout_length` "
                f"(={self.rollout_length}): sequences begin at stored carries"
            )
        kept = max((self.rows(num_envs) - self.window) // self.trace_length + 1, 0) * num_envs
        if kept < self.batch_size:
            raise ConfigError(
                f"`{name}.capacity` (={self.capacity}) is below a batch: {num_envs} environments keep {kept} "
                f"whole sequences of {self.window} steps; `{name}.batch_size` is {self.batch_size}"
            )
