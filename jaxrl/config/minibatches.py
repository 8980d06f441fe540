"""The fields of every algorithm that learns from a rollout by epochs of minibatches."""

from __future__ import annotations

import dataclasses
import math

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import LARGEST_INT32, above, at_least, bounds, field, one_of, require_divides

MOST_EPOCHS = 10_000  # over one rollout


@dataclasses.dataclass(frozen=True)
class MinibatchConfig(AlgorithmConfig):
    """Rollouts, epochs, minibatches and the optimiser."""

    rollout_length: int = field(128, *bounds(1, LARGEST_INT32), help="time steps of one rollout", fixed=True)
    num_epochs: int = field(4, *bounds(1, MOST_EPOCHS), help="passes over each rollout")
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
