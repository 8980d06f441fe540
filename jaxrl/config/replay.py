"""The fields of algorithms that learn from a memory, and the section of DAgger."""

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

STRATEGIES = ("future", "final", "episode", "random")  # of hindsight
_MOST_UPDATES = 10_000  # on one rollout
_MOST_STEPS = 1_000  # of one return
_MOST_GOALS = 1_000  # for each row
MOST_ROWS = 100_000  # of one sequence
SOLVER = "solver"  # a teacher of DAgger


@dataclasses.dataclass(frozen=True)
class MemoryConfig(AlgorithmConfig):
    """Rollouts into a memory, and updates on batches sampled from it."""

    rollout_length: int = field(10, *bounds(1, LARGEST_INT32), help="time steps of one rollout", fixed=True)
    updates_per_rollout: int = field(
        8, *bounds(1, _MOST_UPDATES), help="updates after each rollout, each on its own batch"
    )
    batch_size: int = field(128, *bounds(1, LARGEST_INT32), help="transitions of an update, over all devices")
    capacity: int = field(
        10_000,
        *bounds(1, LARGEST_INT32),
        help="steps kept of all environments, rounded down to whole rollouts",
        fixed=True,
    )
    checkpoint: bool = field(
        True, help="checkpoints include the memory; False: a resumed run collects it again"
    )
    learning_starts: int = field(
        1_000, *bounds(0, LARGEST_INT32), help="steps kept before anything is learnt"
    )

    @property
    def updates_per_iteration(self) -> int:
        """None before `learning_starts`."""
        return self.updates_per_rollout

    @property
    def window(self) -> int:
        """Rows of an environment that must be kept before any of them is sampled. Default: one."""
        return 1

    def idle_iterations(self, num_envs: int) -> int:
        """Those before `learning_starts` steps, and the first sequence, are kept."""
        rows = max(math.ceil(self.learning_starts / num_envs), self.window)
        return math.ceil(rows / self.rollout_length) - 1

    def groups(self, num_envs: int) -> int:
        """Groups of environments that give equal shares of a batch, whatever the devices."""
        return math.gcd(self.batch_size, num_envs)

    def rows(self, num_envs: int) -> int:
        """Rows kept of each environment."""
        return self.capacity // (num_envs * self.rollout_length) * self.rollout_length

    def envs_multiple(self, num_envs: int) -> int:
        return num_envs // self.groups(num_envs)

    @property
    def memory_remedies(self) -> tuple[tuple[str, str, int], ...]:
        return (
            ("a smaller memory", "capacity", self.capacity // 2),
            ("smaller batches", "batch_size", self.batch_size // 2),
        )

    def check_sizes(self, name: str, num_envs: int) -> None:
        """Raises ConfigError if the memory holds no batch; overridden for each kind of sample."""
        raise NotImplementedError(f"{type(self).__name__} must define the needs of a batch")

    def require_sequences(self, name: str, num_envs: int, interval: int, unseen: int = 0) -> None:
        """Raises ConfigError if the memory holds no batch of sequences that begin every `interval` steps."""
        skipped = -(-unseen // interval)
        kept = max((self.rows(num_envs) - self.window) // interval + 1 - skipped, 0) * num_envs
        if kept < self.batch_size:
            raise ConfigError(
                f"`{name}.capacity` (={self.capacity}) is below a batch: {num_envs} environments keep {kept} "
                f"whole sequences of {self.window} steps; `{name}.batch_size` is {self.batch_size}"
            )

    def check_counts(self, name: str, num_envs: int, device_count: int) -> None:
        """The memory holds a batch and the start of learning; devices share out the groups."""
        self.check_sizes(name, num_envs)
        if self.learning_starts > self.rows(num_envs) * num_envs:
            raise ConfigError(
                f"`{name}.capacity` (={self.capacity}) must be at least `{name}.learning_starts` "
                f"(={self.learning_starts}), in whole rollouts"
            )
        if self.groups(num_envs) % device_count:
            raise ConfigError(
                f"`{name}.batch_size` (={self.batch_size}) and `env.num_envs` (={num_envs}) have no common "
                f"divisor that {device_count} devices share out: draws are from equal groups of environments"
            )


@dataclasses.dataclass(frozen=True)
class ReplayConfig(MemoryConfig):
    """Values learnt from what the memory replays."""

    constants: ClassVar[tuple[str, ...]] = ("priority_beta_draws",)
    # Draws until the exponent of the importance weights is 1.
    priority_beta_draws: ClassVar[int] = 100_000
    # Of single steps; fields of an algorithm that learns from sequences.
    trace_length = burn_in = overlap = 0

    n_step: int = field(3, *bounds(1, _MOST_STEPS), help="steps whose rewards a target sums")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    prioritised: bool = field(
        False, help="transitions are sampled by their TD error (Schaul et al. 2016)", fixed=True
    )
    priority_alpha: float = field(
        0.6, between(0, 1), help="exponent of the priorities; 0: uniform", fixed=True
    )
    priority_beta: float = field(
        0.4, between(0, 1), help="exponent of the importance weights at the start", fixed=True
    )
    hindsight: str = field(
        "none",
        one_of("none", *STRATEGIES),
        help="source of other goals for transitions (Andrychowicz et al. 2017): this or a later "
        "step of the episode, its last, any of it, any in memory",
        fixed=True,
    )
    hindsight_k: int = field(
        4,
        *bounds(1, _MOST_GOALS),
        help="transitions with another goal for each that keeps its own, on average",
        fixed=True,
    )

    hindsight_goals: str = field(
        "",
        help="module:name of the reward rule for goals of a gymnasium environment: a function "
        "of (achieved, desired), or an object with `compute_reward` and "
        "`compute_terminated`; empty: 1 and the end below a distance of 0.5, else -1",
        fixed=True,
        names_module=True,
    )

    @property
    def interval(self) -> int:
        """Steps from the start of one sequence to the start of the next."""
        return self.trace_length - self.overlap

    @property
    def window(self) -> int:
        """Rows of a step or of a sequence with its burn-in, and those that its last return sums."""
        return self.n_step + (self.burn_in + self.trace_length if self.trace_length else 1)

    def carry_interval(self, num_envs: int) -> int:
        return max(self.interval, 1) if self.trace_length else super().carry_interval(num_envs)

    def steps_per_update(self, num_envs: int) -> int:
        return self.batch_size * max(self.trace_length, 1)

    def check_sizes(self, name: str, num_envs: int, unseen: int = 0) -> None:
        """Raises ConfigError if the memory holds no batch, or sequences begin where no carry is stored.

        Of each of the `num_envs`, the `unseen` oldest rows are never sampled: some of their frames are gone.
        """
        if self.trace_length:
            trace = f"`{name}.trace_length` (={self.trace_length})"
            overlap = f"`{name}.overlap` (={self.overlap})"
            if self.interval < 1:
                raise ConfigError(f"{overlap} must be below {trace}")
            if self.rollout_length % self.interval:
                rollout = f"`{name}.rollout_length` (={self.rollout_length})"
                rule = f"must divide {rollout}: sequences begin at stored carries"
                raise ConfigError(f"{trace} less {overlap} {rule}")
            self.require_sequences(name, num_envs, self.interval, unseen)
            return
        rows = self.rows(num_envs)
        steps = (rows - self.n_step - unseen) * num_envs
        if steps < self.batch_size:
            first = f" and the first {unseen}, whose frames are gone" if unseen else ""
            raise ConfigError(
                f"`{name}.capacity` (={self.capacity}) is below a batch: {rows} whole rows of {num_envs} "
                f"environments, without the last `{name}.n_step` (={self.n_step}){first}, are fewer than "
                f"`{name}.batch_size` (={self.batch_size})"
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
        *bounds(1, MOST_ROWS),
        help="steps of each sequence that are learnt from; divides rollout_length",
        fixed=True,
    )
    burn_in: int = field(
        16, *bounds(0, MOST_ROWS), help="earlier steps that only renew the stored carry", fixed=True
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
        rollout = f"`{name}.rollout_length` (={self.rollout_length}): sequences begin at stored carries"
        require_divides(f"{name}.trace_length", self.trace_length, self.rollout_length, rollout)
        self.require_sequences(name, num_envs, self.trace_length)
