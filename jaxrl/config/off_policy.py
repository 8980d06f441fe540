"""The sections of the algorithms that learn from a memory: DQN, R2D2 and SAC."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxrl.config.fields import LARGEST_INT32, above, at_least, between, bounds, field, one_of, with_default
from jaxrl.config.minibatches import MinibatchConfig, PQNConfig
from jaxrl.config.replay import MOST_ROWS, ReplayConfig


@dataclasses.dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """DQN (Mnih et al. 2015) with parts of Rainbow, each a field."""

    learning_rate: float = field(2.5e-4, at_least(0), help="peak learning rate of Adam")
    schedule: str = with_default(MinibatchConfig, "schedule", "constant")
    max_grad_norm: float = field(10.0, above(0), help="the gradient is scaled down to this norm")
    double: bool = field(
        True, help="the network chooses the action, the target network values it (van Hasselt et al. 2016)"
    )
    dueling: bool = with_default(PQNConfig, "dueling", False)
    target_period: int = field(
        50, *bounds(1, LARGEST_INT32), help="updates between changes of the target network"
    )
    target_rate: float = field(
        1.0,
        between(0, 1),
        help="averaging rate of the target network at each change; 1: a copy; 0.005 with period 1: Polyak",
    )
    exploration: str = field(
        "linear",
        one_of("linear", "ladder"),
        help="linear: the share of random actions (epsilon) falls; ladder: each environment has its own "
        "(Horgan et al. 2018)",
    )
    exploration_start: float = field(1.0, between(0, 1), help="epsilon at the start; of the ladder, none")
    exploration_end: float = field(0.05, between(0, 1), help="epsilon at the end; of the ladder, none")
    exploration_fraction: float = field(
        0.5, between(0, 1), help="share of the updates in which epsilon falls from start to end"
    )


@dataclasses.dataclass(frozen=True)
class R2D2Config(DQNConfig):
    """R2D2 (Kapturowski et al. 2019): Q-learning from replayed sequences."""

    constants: ClassVar[tuple[str, ...]] = (*DQNConfig.constants, "priority_eta")
    # The share of the largest error in the priority of a sequence; the rest is the mean's.
    priority_eta: ClassVar[float] = 0.9

    rollout_length: int = with_default(DQNConfig, "rollout_length", 40)
    updates_per_rollout: int = with_default(DQNConfig, "updates_per_rollout", 2)
    batch_size: int = with_default(
        DQNConfig, "batch_size", 64, help="sequences of an update, over all devices"
    )
    capacity: int = with_default(DQNConfig, "capacity", 200_000)
    learning_starts: int = with_default(DQNConfig, "learning_starts", 10_000)
    n_step: int = with_default(DQNConfig, "n_step", 5)
    gamma: float = with_default(DQNConfig, "gamma", 0.997)
    prioritised: bool = with_default(
        DQNConfig, "prioritised", True, help="sequences are sampled by their TD errors (Schaul et al. 2016)"
    )
    priority_alpha: float = with_default(DQNConfig, "priority_alpha", 0.9)
    priority_beta: float = with_default(DQNConfig, "priority_beta", 0.6)
    dueling: bool = with_default(DQNConfig, "dueling", True)
    exploration: str = with_default(DQNConfig, "exploration", "ladder")
    burn_in: int = field(
        20,
        *bounds(0, MOST_ROWS),
        help="steps at the start of each sequence that only renew the carry",
        fixed=True,
    )
    trace_length: int = field(
        80,
        *bounds(1, MOST_ROWS),
        help="steps of each sequence that are learnt from, after the burn-in",
        fixed=True,
    )
    overlap: int = field(
        40,
        *bounds(0, MOST_ROWS),
        help="steps that a sequence shares with the next one of its environment",
        fixed=True,
    )
    value_rescaling: bool = field(
        True, help="targets are rescaled (Pohlen et al. 2018), so that rewards need no clipping"
    )


@dataclasses.dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """Soft actor-critic with a learnt temperature (Haarnoja et al. 2018)."""

    constants: ClassVar[tuple[str, ...]] = (*ReplayConfig.constants, "priority_eta")
    priority_eta: ClassVar[float] = R2D2Config.priority_eta

    rollout_length: int = with_default(ReplayConfig, "rollout_length", 4)
    updates_per_rollout: int = with_default(ReplayConfig, "updates_per_rollout", 16)
    batch_size: int = with_default(ReplayConfig, "batch_size", 256)
    capacity: int = with_default(ReplayConfig, "capacity", 100_000)
    n_step: int = with_default(ReplayConfig, "n_step", 1)
    learning_rate: float = field(3e-4, at_least(0), help="learning rate of the policy's Adam")
    critic_rate: float = field(1e-3, at_least(0), help="learning rate of the critics' Adam")
    temperature_rate: float = field(1e-3, at_least(0), help="learning rate of the temperature's Adam")
    max_grad_norm: float = field(100.0, above(0), help="each gradient is scaled down to this norm")
    target_rate: float = field(
        0.005, between(0, 1), help="averaging rate of the target critics at each update"
    )
    temperature: float = field(1.0, above(0), help="weight of the entropy (alpha) at the start")
    learn_temperature: bool = field(
        True, help="the temperature is learnt so that the entropy is `target_entropy`; False: it stays"
    )
    target_entropy: float | None = field(
        None,
        between(-1_000, 1_000),
        help="target entropy of an action in [-1, 1], in nats; none: minus the number of its components",
    )
    trace_length: int = field(
        0,
        *bounds(0, MOST_ROWS),
        help="steps of each sequence that a recurrent network learns from; 0: single steps",
        fixed=True,
    )
    overlap: int = with_default(R2D2Config, "overlap", 0)
    burn_in: int = with_default(R2D2Config, "burn_in", 0)
