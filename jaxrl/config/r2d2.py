"""The section of R2D2."""

from __future__ import annotations

import dataclasses

from jaxrl.config.dqn import DQNConfig
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import LARGEST_INT32, at_least, at_most, between, field, one_of

_MOST_ROWS = 100_000  # of one sequence


@dataclasses.dataclass(frozen=True)
class R2D2Config(DQNConfig):
    """R2D2 (Kapturowski et al. 2019): Q-learning from replayed sequences."""

    rollout_length: int = field(
        40, at_least(1), at_most(LARGEST_INT32), help="time steps of one rollout", fixed=True
    )
    updates_per_rollout: int = field(
        2, at_least(1), at_most(10_000), help="updates after each rollout, each on a batch of its own"
    )
    batch_size: int = field(
        64, at_least(1), at_most(LARGEST_INT32), help="sequences of an update, over all devices"
    )
    capacity: int = field(
        200_000,
        at_least(1),
        at_most(LARGEST_INT32),
        help="steps kept of all environments, rounded down to whole rollouts",
        fixed=True,
    )
    learning_starts: int = field(
        10_000, at_least(0), at_most(LARGEST_INT32), help="steps kept before anything is learnt"
    )
    n_step: int = field(5, at_least(1), at_most(1_000), help="steps whose rewards a target sums")
    gamma: float = field(0.997, between(0, 1), help="discount factor")
    prioritised: bool = field(
        True, help="sequences are drawn by their TD errors (Schaul et al. 2016)", fixed=True
    )
    priority_alpha: float = field(
        0.9, between(0, 1), help="exponent of the priorities; 0: uniform", fixed=True
    )
    priority_beta: float = field(
        0.6, between(0, 1), help="exponent of the importance weights at the start", fixed=True
    )
    dueling: bool = field(
        True, help="a value and advantages instead of Q-values (Wang et al. 2016)", fixed=True
    )
    exploration: str = field(
        "ladder",
        one_of("linear", "ladder"),
        help="ladder: each environment has its own share of random actions (Horgan et al. 2018); linear: one "
        "for all, that falls",
    )
    burn_in: int = field(
        20,
        at_least(0),
        at_most(_MOST_ROWS),
        help="steps at the start of each sequence that only renew the carry",
        fixed=True,
    )
    trace_length: int = field(
        80,
        at_least(1),
        at_most(_MOST_ROWS),
        help="steps of each sequence that are learnt from, after the burn-in",
        fixed=True,
    )
    overlap: int = field(
        40,
        at_least(0),
        at_most(_MOST_ROWS),
        help="steps that a sequence shares with the next one of its environment",
        fixed=True,
    )
    priority_eta: float = field(
        0.9,
        between(0, 1),
        help="share of the largest error in the priority of a sequence; the rest is that of the mean",
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

    def check_sizes(self, name: str, num_envs: int) -> None:
        if self.interval < 1:
            raise ConfigError(
                f"`{name}.overlap` (={self.overlap}) must be below "
                f"`{name}.trace_length` (={self.trace_length})"
            )
        if self.rollout_length % self.interval:
            raise ConfigError(
                f"`{name}.trace_length` (={self.trace_length}) less `{name}.overlap` (={self.overlap}) "
                f"must divide `{name}.rollout_length` (={self.rollout_length}): sequences begin at stored "
                "carries"
            )
        window = self.burn_in + self.trace_length + self.n_step
        kept = max((self.rows(num_envs) - window) // self.interval + 1, 0) * num_envs
        if kept < self.batch_size:
            raise ConfigError(
                f"`{name}.capacity` (={self.capacity}) is below a batch: {num_envs} environments keep {kept} "
                f"whole sequences of {window} steps, `{name}.batch_size` (={self.batch_size}) are drawn"
            )
