"""The configuration as everything else sees it: its sections, and every count that follows from them.

An algorithm that comes with this package is a line of `BuiltInSections`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from jaxrl.config import sections
from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.curriculum import LEARNABILITY, CurriculumConfig, LevelsConfig, SelfPlayConfig
from jaxrl.config.fields import between, bounds, field, one_of
from jaxrl.config.minibatches import A2CConfig, BehaviorCloningConfig, PPOConfig, PQNConfig
from jaxrl.config.network import NetworkConfig
from jaxrl.config.off_policy import DQNConfig, R2D2Config, SACConfig
from jaxrl.config.replay import DAggerConfig


class BuiltInSections:
    """The sections of the built-in algorithms; `Config` has the chosen algorithm's section.

    The class of each algorithm is in `jaxrl/algorithms/registry.py`, under the same name.
    """

    ppo: PPOConfig
    a2c: A2CConfig
    pqn: PQNConfig
    dqn: DQNConfig
    r2d2: R2D2Config
    sac: SACConfig
    behavior_cloning: BehaviorCloningConfig
    dagger: DAggerConfig


BUILT_IN: dict[str, type[AlgorithmConfig]] = get_type_hints(BuiltInSections)
DEFAULT = "ppo"


def constant_of(name: str) -> Any:
    """The value of a former field, dotted, that is a constant of its section by now; None of other names."""
    section, _, attribute = name.rpartition(".")
    kind = BUILT_IN.get(section, AlgorithmConfig)
    return getattr(kind, attribute) if attribute in kind.constants else None


_Section = TypeVar("_Section", bound=AlgorithmConfig)
# Log entries of a run without a set interval: a curve, even if dispatches or iterations are long.
_LOG_ENTRIES = 40
_MOST_LOG_STEPS = 50_000  # between them, to see a long run live
_MOST_DEVICES = 65_536  # far beyond what any machine has


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(BuiltInSections):
    """A checked configuration: every field, the devices, and every derived count.

    An iteration is one rollout of all environments and the updates on it; an update is one optimiser step.

    Attributes:
      section: the name of the algorithm's section, "" if that is not read.
      learner: that section; it is also the attribute of that name, such as `config.ppo`.
      planned_updates: of the run, if its `stages` make different numbers of updates on a rollout; 0: as many
        on each.
    """

    algorithm: str = field(
        DEFAULT,
        help=f"what learns: {', '.join(BUILT_IN)}, the name of an installed algorithm, or module:Class; its "
        "fields are in their own section",
        fixed=True,
        names_module=True,
    )
    seed: int = field(0, between(0, 2**32 - 1), help="decides all random numbers", fixed=True)
    num_devices: int = field(
        0,
        *bounds(0, _MOST_DEVICES),
        help="devices to train on; 0: all accelerators, or on CPU as many virtual devices as pay off",
    )
    hardware_profile: str = field(
        "none",
        one_of("none", "auto"),
        help="auto: jaxrl train takes as many environments as fit in nine tenths of the "
        "devices' memory, and divides minibatches that would not fit otherwise",
    )
    nonfinite: str = field(
        "halt",
        one_of("halt", "skip", "rollback"),
        help="reaction to a NaN or an infinity in observations, rewards, losses or gradients: halt saves the "
        "state before it and names its origin, skip drops the affected updates, rollback returns to the last "
        "checkpoint and continues with other random numbers",
    )
    resume_from: str = field(
        "",
        help="a run folder, or one of its checkpoints/STEP, whose whole state a run in a new folder "
        "continues; that run is only read",
    )
    init_from: str = field(
        "",
        help="a run folder whose parameters and normaliser a fresh run starts from; a resumed run does not "
        "read it",
    )
    init_names: tuple[str, ...] = field(
        ("*",), help='patterns of the arrays that init_from gives, such as "params/encoder*"'
    )
    stages: tuple[str, ...] = field(
        (),
        help="parts of the run, one after the other, each with a budget and the fields that change with it, "
        'such as "iterations=1000 learning_rate=1e-3", a dict or JSON; or one file of YAML with all of them '
        "(docs/how_to/stages.md)",
    )
    notes: str = field("", help="free text that is stored with every checkpoint; verify-checkpoint shows it")
    env: sections.EnvConfig
    curriculum: CurriculumConfig
    levels: LevelsConfig
    selfplay: SelfPlayConfig
    host: sections.HostConfig
    network: NetworkConfig
    normalize: sections.NormalizeConfig
    section: str
    learner: AlgorithmConfig
    stop: sections.StopConfig
    log: sections.LogConfig
    evaluate: sections.EvaluateConfig
    checkpoint: sections.CheckpointConfig
    storage: sections.StorageConfig
    population: sections.PopulationConfig
    profile: sections.ProfileConfig
    device_count: int
    planned_updates: int = 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The section of the algorithm, under its name."""
            if name and name == vars(self).get("section"):
                return self.learner
            raise AttributeError(f"the configuration of {vars(self).get('algorithm')} has no `{name}`")

    def learner_as(self, kind: type[_Section]) -> _Section:
        """The section of the algorithm, which is of this class."""
        assert isinstance(self.learner, kind)
        return self.learner

    @property
    def envs_per_device(self) -> int:
        return self.env.num_envs // self.device_count

    @property
    def rows_per_device(self) -> int:
        """Rows of a device's batch: its environments, or the agents in them."""
        return self.env.rows // self.device_count

    @property
    def rollout_length(self) -> int:
        """Time steps of one rollout."""
        return self.learner.rollout_length

    @property
    def sequence_length(self) -> int:
        """Time steps through which gradients flow, from one stored carry to the next."""
        return self.learner.carry_interval(self.env.rows)

    @property
    def num_chunks(self) -> int:
        """Sequences into which one environment's rollout is cut."""
        return self.rollout_length // self.sequence_length

    @property
    def collects(self) -> bool:
        """True if training steps the environments; if not, they give the spaces and are evaluated on."""
        return self.learner.collects

    @property
    def clock(self) -> str:
        """The unit of `steps` in all fields, rows and checkpoints: "steps" of environments, or "updates"."""
        return "steps" if self.collects else "updates"

    @property
    def steps_per_iteration(self) -> int:
        """By how much an iteration advances the clock: steps of all environments, or updates.

        A step of an environment of several agents is one, however many of them take part.
        """
        return self.env.num_envs * self.rollout_length if self.collects else self.updates_per_iteration

    @property
    def num_iterations(self) -> int:
        """Iterations that reach `stop.steps`; the last may go past it."""
        return math.ceil(self.stop.most_steps / self.steps_per_iteration)

    @property
    def follows_clock(self) -> bool:
        """True if schedules follow the seconds of training, since these alone are the budget of the run."""
        return self.stop.steps is None and self.stop.seconds is not None

    @property
    def updates_per_iteration(self) -> int:
        """Planned ones; an algorithm may stop early."""
        return self.learner.updates_per_iteration

    @property
    def steps_per_update(self) -> int:
        """Rows that one update learns from, over all devices: steps of environments, or of agents."""
        return self.learner.steps_per_update(self.env.rows)

    @property
    def total_updates(self) -> int:
        """Planned optimiser steps of the run, which schedules follow."""
        learning = self.num_iterations - self.learner.idle_iterations(self.env.rows)
        return self.planned_updates or max(1, learning) * self.updates_per_iteration

    @property
    def log_iterations(self) -> int:
        """Iterations between log entries."""
        if self.log.every_steps:
            return math.ceil(self.log.every_steps / self.steps_per_iteration)
        return max(1, min(_MOST_LOG_STEPS, self.stop.most_steps // _LOG_ENTRIES) // self.steps_per_iteration)

    @property
    def log_seconds(self) -> float:
        """Seconds of training after which a log entry is due whatever the steps; infinite if these decide."""
        budgets = (self.stop.seconds, self.stop.wall_seconds)
        least = min((x for x in budgets if x is not None), default=math.inf)
        return math.inf if self.log.every_steps else least / _LOG_ENTRIES

    @property
    def evaluate_iterations(self) -> int:
        """Iterations between evaluations; 0: only at the end."""
        return math.ceil(self.evaluate.every_steps / self.steps_per_iteration)

    @property
    def checkpoint_iterations(self) -> int:
        """Iterations between checkpoints; 0: only at the end."""
        return math.ceil(self.checkpoint.every_steps / self.steps_per_iteration)

    def next_event(self, iteration: int) -> int:
        """The first iteration after `iteration` at whose end the host must look."""
        intervals = (
            self.log_iterations,
            self.evaluate_iterations,
            self.checkpoint_iterations,
            self.refresh_iterations,
        )
        following = [(iteration // every + 1) * every for every in intervals if every > 0]
        return min([*following, self.num_iterations])

    @property
    def refresh_iterations(self) -> int:
        """Iterations between two choices of levels by rollouts of their own; 0: there are none."""
        return self.levels.refresh_iterations if self.curriculum.name == LEARNABILITY else 0

    def refreshes(self, iteration: int) -> bool:
        """True if levels are chosen anew after `iteration`, before the next one begins."""
        return self.refresh_iterations > 0 and iteration % self.refresh_iterations == 0

    @property
    def profile_window(self) -> tuple[int, int]:
        """The iteration with which a trace begins, and how many are in it (0: no trace)."""
        per_iteration = self.steps_per_iteration
        return self.profile.start // per_iteration, math.ceil(self.profile.steps / per_iteration)
