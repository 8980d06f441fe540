"""The section of SAC."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import above, at_least, at_most, between, field, with_default
from jaxrl.config.r2d2 import R2D2Config
from jaxrl.config.replay import ReplayConfig
from jaxrl.config.sequences import MOST_ROWS, check_sequences


@dataclasses.dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """Soft actor-critic with a learnt temperature (Haarnoja et al. 2018)."""

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
        at_least(0),
        at_most(MOST_ROWS),
        help="steps of each sequence that a recurrent network learns from; 0: single steps",
        fixed=True,
    )
    overlap: int = with_default(R2D2Config, "overlap", 0)
    burn_in: int = with_default(R2D2Config, "burn_in", 0)
    priority_eta: float = with_default(R2D2Config, "priority_eta", 0.9)

    @property
    def interval(self) -> int:
        """Steps from the start of one sequence to that of the next."""
        return self.trace_length - self.overlap

    def carry_interval(self, num_envs: int) -> int:
        return max(self.interval, 1) if self.trace_length else super().carry_interval(num_envs)

    def steps_per_update(self, num_envs: int) -> int:
        return self.batch_size * max(self.trace_length, 1)

    def check_sizes(self, name: str, num_envs: int, unseen: int = 0) -> None:
        if self.trace_length:
            check_sequences(self, name, num_envs, unseen)
        else:
            super().check_sizes(name, num_envs, unseen)
