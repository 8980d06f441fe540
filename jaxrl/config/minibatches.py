"""The sections of the algorithms that learn by epochs of minibatches: PPO, A2C, PQN, behavioural cloning."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import (
    LARGEST_INT32,
    above,
    at_least,
    between,
    bounds,
    field,
    one_of,
    require_divides,
    with_default,
)

_MOST_EPOCHS = 10_000  # over one rollout
_MOST_VALIDATIONS = 1_000_000


@dataclasses.dataclass(frozen=True)
class MinibatchConfig(AlgorithmConfig):
    """Rollouts, epochs, minibatches and the optimiser."""

    rollout_length: int = field(128, *bounds(1, LARGEST_INT32), help="time steps of one rollout", fixed=True)
    num_epochs: int = field(4, *bounds(1, _MOST_EPOCHS), help="passes over each rollout")
    num_minibatches: int = field(
        4,
        *bounds(1, LARGEST_INT32),
        help="updates per epoch, each on other sequences: of different environments or, with "
        "more minibatches than environments, also of parts of the rollout",
    )
    sequence_length: int = field(
        0,
        *bounds(0, LARGEST_INT32),
        help="time steps through which gradients flow; 0: as many as the minibatches allow, at most the "
        "whole rollout",
    )
    refresh_carries: bool = field(
        False,
        help="before each epoch except the first, recompute the initial carries of sequences "
        "with the current parameters, from the start of the rollout",
    )
    gradient_accumulation: int = field(
        0,
        *bounds(0, LARGEST_INT32),
        help="parts of a minibatch whose gradients are summed one after the other; 0: the "
        "fastest number here",
    )
    learning_rate: float = field(2.5e-4, at_least(0), help="peak learning rate of Adam")
    schedule: str = field(
        "linear",
        one_of("constant", "linear", "cosine"),
        help="the learning rate over the run: constant, or falling to 0",
    )
    warmup_updates: int = field(
        0, *bounds(0, LARGEST_INT32), help="first updates, over which the learning rate rises from 0"
    )
    max_grad_norm: float = field(0.5, above(0), help="the gradient is scaled down to this norm")
    shard_optimizer: str = field(
        "auto",
        one_of("auto", "on", "off"),
        help="Adam's moments are divided among the devices instead of being on each; auto: from a million "
        "parameters on",
    )

    def carry_interval(self, num_envs: int) -> int:
        return self.sequence_length or self.rollout_length // self.minibatch_chunks(num_envs)

    @property
    def updates_per_iteration(self) -> int:
        """A stop of an algorithm's own, such as by KL divergence, makes fewer."""
        return self.num_epochs * self.num_minibatches

    def minibatch_envs(self, num_envs: int) -> int:
        """Neighbouring environments, of `num_envs` in all, that are dealt out to as many minibatches."""
        return math.gcd(self.num_minibatches, num_envs)

    def minibatch_chunks(self, num_envs: int) -> int:
        """Chunks in a row, of each environment, that are dealt out to different minibatches."""
        return self.num_minibatches // self.minibatch_envs(num_envs)

    def envs_multiple(self, num_envs: int) -> int:
        return self.minibatch_envs(num_envs) * max(1, self.gradient_accumulation)

    @property
    def accumulation_field(self) -> str:
        return "gradient_accumulation"

    @property
    def memory_remedies(self) -> tuple[tuple[str, str, int], ...]:
        return (
            ("shorter rollouts", "rollout_length", self.rollout_length // 2),
            ("more minibatches", "num_minibatches", 2 * self.num_minibatches),
            ("accumulation", self.accumulation_field, 2 * max(1, self.gradient_accumulation)),
        )

    def steps_per_update(self, num_envs: int) -> int:
        return num_envs * self.rollout_length // self.num_minibatches

    def check_counts(self, name: str, num_envs: int, device_count: int) -> None:
        """Minibatches take whole sequences, and the parts of an accumulated minibatch whole environments."""
        group = self.minibatch_envs(num_envs)
        envs = num_envs // device_count
        described = f"`env.num_envs` (={num_envs})"
        if device_count > 1:
            described += f" / devices (={device_count})"
        if envs % group:
            require_divides(f"{name}.num_minibatches", self.num_minibatches, envs, described)
        described += f" / `{name}.num_minibatches` (={self.num_minibatches})"
        parts = max(1, self.gradient_accumulation)
        require_divides(f"{name}.gradient_accumulation", parts, envs // group, described)
        rollout = f"`{name}.rollout_length` (={self.rollout_length})"
        chunks = self.minibatch_chunks(num_envs)
        if self.sequence_length:
            require_divides(f"{name}.sequence_length", self.sequence_length, self.rollout_length, rollout)
            rollout += f" / `{name}.sequence_length` (={self.sequence_length})"
        if self.rollout_length // (self.sequence_length or 1) % chunks:
            raise ConfigError(
                f"`{name}.num_minibatches` (={self.num_minibatches}) must divide `env.num_envs` "
                f"(={num_envs}) times the sequences of each: {chunks} of them do not divide {rollout}"
            )


@dataclasses.dataclass(frozen=True)
class PPOConfig(MinibatchConfig):
    """PPO (Schulman et al. 2017), on sequences if the network has memory."""

    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(0.95, between(0, 1), help="lambda of generalised advantage estimation")
    clip_range: float = field(
        0.2, above(0), help="epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon]"
    )
    clip_value: bool = field(False, help="also clip how far a value moves, by clip_range")
    normalize_advantages: bool = field(
        True, help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1"
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    entropy_schedule: str = field(
        "constant",
        one_of("constant", "linear", "cosine"),
        help="the entropy weight over the run: constant, or falling to 0, so that the policy "
        "ends less random",
    )
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")
    auxiliary_loss: str = field(
        "",
        help="module:function of a custom loss that is added to PPO's (docs/tutorials/algorithm.md)",
        fixed=True,
        names_module=True,
    )
    teacher: str = field(
        "",
        help="a run folder, such as a clone's, whose policy regularises this one: teacher_coef times "
        "KL(teacher || policy) is added to the loss (Schmitt et al. 2018)",
        fixed=True,
    )
    teacher_coef: float = field(1.0, at_least(0), help="weight of that divergence at the start")
    teacher_fraction: float = field(
        0.5, between(0, 1), help="share of the run in which that weight falls linearly to 0"
    )
    value_warmup: int = field(
        0,
        *bounds(0, LARGEST_INT32),
        help="first iterations in which only the value function learns, for init_from a "
        "clone, which has none",
    )
    target_kl: float | None = field(
        None, above(0), help="approximate KL divergence that ends the updates on a rollout; none: never"
    )


@dataclasses.dataclass(frozen=True)
class A2CConfig(MinibatchConfig):
    """Advantage actor-critic (Mnih et al. 2016), a rollout in one update."""

    rollout_length: int = with_default(MinibatchConfig, "rollout_length", 16)
    num_epochs: int = with_default(
        MinibatchConfig, "num_epochs", 1, help="passes over each rollout; more than 1 is off-policy"
    )
    num_minibatches: int = with_default(
        MinibatchConfig, "num_minibatches", 1, help="updates per epoch, each on other sequences"
    )
    learning_rate: float = with_default(MinibatchConfig, "learning_rate", 1e-3)
    gamma: float = with_default(PPOConfig, "gamma", 0.99)
    gae_lambda: float = with_default(
        PPOConfig, "gae_lambda", 1.0, help="lambda of generalised advantage estimation; 1: n-step returns"
    )
    normalize_advantages: bool = with_default(PPOConfig, "normalize_advantages", False)
    entropy_coef: float = with_default(PPOConfig, "entropy_coef", 0.01)
    value_coef: float = with_default(PPOConfig, "value_coef", 0.5)


@dataclasses.dataclass(frozen=True)
class PQNConfig(MinibatchConfig):
    """PQN (Gallici et al. 2024): Q-learning from rollouts, without replay."""

    rollout_length: int = with_default(MinibatchConfig, "rollout_length", 32)
    num_epochs: int = with_default(MinibatchConfig, "num_epochs", 2)
    learning_rate: float = with_default(MinibatchConfig, "learning_rate", 5e-4)
    max_grad_norm: float = with_default(MinibatchConfig, "max_grad_norm", 10.0)
    gamma: float = with_default(PPOConfig, "gamma", 0.99)
    q_lambda: float = field(
        0.65, between(0, 1), help="lambda of Q(lambda) targets; 0: one step, 1: the whole rollout"
    )
    exploration_start: float = field(
        1.0, between(0, 1), help="share of random actions at the start (epsilon)"
    )
    exploration_end: float = field(0.05, between(0, 1), help="share of random actions at the end")
    exploration_fraction: float = field(
        0.1, between(0, 1), help="share of the run in which epsilon falls from start to end"
    )
    dueling: bool = field(
        False, help="a value and advantages instead of Q-values (Wang et al. 2016)", fixed=True
    )


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
