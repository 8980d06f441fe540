"""The section of R2D2."""

from __future__ import annotations

import dataclasses

from jaxrl.config.dqn import DQNConfig
from jaxrl.config.fields import at_least, at_most, between, field, with_default
from jaxrl.config.sequences import MOST_ROWS, check_sequences


@dataclasses.dataclass(frozen=True)
class R2D2Config(DQNConfig):
    """R2D2 (Kapturowski et al. 2019): Q-learning from replayed sequences."""

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
        at_least(0),
        at_most(MOST_ROWS),
        help="steps at the start of each sequence that only renew the carry",
        fixed=True,
    )
    trace_length: int = field(
        80,
        at_least(1),
        at_most(MOST_ROWS),
        help="steps of each sequence that are learnt from, after the burn-in",
        fixed=True,
    )
    overlap: int = field(
        40,
        at_least(0),
        at_most(MOST_ROWS),
        help="steps that a sequence shares with the next one of its environment",
        fixed=True,
    )
    priority_eta: float = field(
        0.9,
        between(0, 1),
        help="weight of the largest error in the priority of a sequence; the mean has the rest",
    )
    value_rescaling: bool = field(
        True, help="targets are rescaled (Pohlen et al. 2018), so that rewards need no clipping"
    )

    @property
    def interval(self) -> int:
        """Steps from the start of one sequence to that of the next."""
        return self.trace_length - self.overlap

    def carry_interval(self, num_envs: int) -> int:
        return max(self.interval, 1)

    def steps_per_update(self, num_envs: int) -> int:
        return self.batch_size * self.trace_length

    def check_sizes(self, name: str, num_envs: int, unseen: int = 0) -> None:
        check_sequences(self, name, num_envs, unseen)
