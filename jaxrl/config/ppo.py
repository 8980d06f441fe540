"""PPO's section of the configuration."""

from __future__ import annotations

import dataclasses

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.fields import (
    LARGEST_INT32,
    above,
    at_least,
    at_most,
    between,
    field,
    one_of,
    require_divides,
)

_MOST_EPOCHS = 10_000  # over one rollout


@dataclasses.dataclass(frozen=True)
class PPOConfig(AlgorithmConfig):
    """PPO (Schulman et al. 2017), on sequences where the network has memory."""

    rollout_length: int = field(
        128, at_least(1), at_most(LARGEST_INT32), help="time steps of one rollout", fixed=True
    )
    num_epochs: int = field(4, at_least(1), at_most(_MOST_EPOCHS), help="passes over each rollout")
    num_minibatches: int = field(
        4, at_least(1), at_most(LARGEST_INT32), help="updates per epoch, each on different environments"
    )
    sequence_length: int = field(
        0,
        at_least(0),
        at_most(LARGEST_INT32),
        help="time steps through which gradients flow; 0: the whole rollout",
    )
    gradient_accumulation: int = field(
        0,
        at_least(0),
        at_most(LARGEST_INT32),
        help="parts of a minibatch whose gradients are summed one after the other; 0: as many as are "
        "fastest here",
    )
    learning_rate: float = field(2.5e-4, at_least(0), help="peak learning rate of Adam")
    schedule: str = field(
        "linear",
        one_of("constant", "linear", "cosine"),
        help="the learning rate over the run: constant, or falling to 0",
    )
    warmup_updates: int = field(
        0,
        at_least(0),
        at_most(LARGEST_INT32),
        help="first updates, over which the learning rate rises from 0",
    )
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    gae_lambda: float = field(0.95, between(0, 1), help="lambda of generalised advantage estimation")
    clip_range: float = field(
        0.2, above(0), help="epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon]"
    )
    clip_value: bool = field(False, help="also clip how far a value moves, by clip_range")
    normalize_advantages: bool = field(
        True,
        help="scale the advantages of each rollout, on all devices, to mean 0 and deviation 1",
    )
    entropy_coef: float = field(0.01, at_least(0), help="weight of the entropy bonus")
    value_coef: float = field(0.5, at_least(0), help="weight of the value loss")
    max_grad_norm: float = field(0.5, above(0), help="the gradient is scaled down to this norm")
    target_kl: float | None = field(
        None, above(0), help="approximate KL divergence that ends the updates on a rollout; none: never"
    )

    @property
    def carry_interval(self) -> int:
        return self.sequence_length or self.rollout_length

    @property
    def updates_per_iteration(self) -> int:
        """A KL stop makes fewer."""
        return self.num_epochs * self.num_minibatches

    @property
    def envs_multiple(self) -> int:
        return self.num_minibatches * max(1, self.gradient_accumulation)

    @property
    def accumulation_field(self) -> str:
        return "ppo.gradient_accumulation"

    @property
    def memory_remedies(self) -> tuple[tuple[str, str, int], ...]:
        return (
            ("shorter rollouts", "ppo.rollout_length", self.rollout_length // 2),
            ("more minibatches", "ppo.num_minibatches", 2 * self.num_minibatches),
            ("accumulation", self.accumulation_field, 2 * max(1, self.gradient_accumulation)),
        )

    def steps_per_update(self, num_envs: int) -> int:
        return num_envs * self.rollout_length // self.num_minibatches

    def minibatch_envs(self, num_envs: int) -> int:
        """Environments of one minibatch, of `num_envs`."""
        return num_envs // self.num_minibatches

    def check_counts(self, num_envs: int, device_count: int) -> None:
        """Minibatches and the parts of an accumulated minibatch take whole environments."""
        envs = num_envs // device_count
        described = f"`env.num_envs` (={num_envs})"
        if device_count > 1:
            described += f" / devices (={device_count})"
        require_divides("ppo.num_minibatches", self.num_minibatches, envs, described)
        described += f" / `ppo.num_minibatches` (={self.num_minibatches})"
        parts = max(1, self.gradient_accumulation)
        require_divides("ppo.gradient_accumulation", parts, self.minibatch_envs(envs), described)
        rollout = f"`ppo.rollout_length` (={self.rollout_length})"
        require_divides("ppo.sequence_length", self.carry_interval, self.rollout_length, rollout)
