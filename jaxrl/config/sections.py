"""The configuration, field by field: frozen dataclasses, one for each section, and the derived counts.

PPO's section has a module of its own, as every algorithm's.
"""

from __future__ import annotations

import dataclasses
import math

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.fields import (
    LARGEST_INT32,
    above,
    at_least,
    at_most,
    at_most_elements,
    between,
    distinct,
    each,
    field,
    matches,
    one_of,
)
from jaxrl.config.ppo import PPOConfig

# Far beyond what any machine has; more never starts, or never ends.
_MOST_DEVICES, _MOST_WORKERS = 65_536, 4_096
_MOST_UNITS, _MOST_LAYERS = 65_536, 64
_MOST_EPISODES = 2**24
_MOST_MEMBERS = 4_096
_LONGEST_WAIT = 1_000_000.0  # seconds; the system's clocks count milliseconds in 32 bits


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    name: str = field("gymnax:CartPole-v1", help="suite:Name or suite:Name(argument=value)", fixed=True)
    num_envs: int = field(
        64, at_least(1), at_most(LARGEST_INT32), help="environments over all devices", fixed=True
    )
    wrappers: tuple[str, ...] = field(
        (), help='names from envs.wrappers, each "name" or "name(argument=value)"', fixed=True
    )
    stagger: bool = field(
        True,
        help="cut first episodes off at random, where there is a time limit, so that ends spread",
        fixed=True,
    )
    success: str = field(
        "",
        help="when an episode is a success: a comparison of return, length or info.KEY, such as "
        '"return >= 195"; empty: by info.success, where the environment reports that',
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class HostConfig:
    """Only for environments on the host: `envpool:` and `gymnasium:`."""

    overlap: bool | None = field(
        None,
        help="collect the next rollout while learning from this one, which is then one iteration old; none: "
        "where learning is on an accelerator",
    )
    fused: bool = field(
        True, help="on CPU a rollout is one program that steps the environments, where that is faster"
    )
    num_groups: int = field(
        2,
        at_least(1),
        at_most(_MOST_WORKERS),
        help="one group steps while the policy chooses for another; 1 steps all in turn",
    )
    num_workers: int = field(
        0,
        at_least(0),
        at_most(_MOST_WORKERS),
        help="processes or threads that step environments, over all groups; 0: by the cores",
    )
    timeout: float = field(
        60.0,
        above(0),
        at_most(_LONGEST_WAIT),
        help="seconds after which an environment that does not answer ends the run",
    )


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The policy's network.

    Names of its parts are checked where they are registered, in `jaxrl.networks`.
    """

    encoder: str = field(
        "auto",
        help="auto (by the observation), mlp, minatar, nature, impala, graph, identity; "
        '"key=name,key=name" for dicts',
        fixed=True,
    )
    core: str = field("lstm", help="lstm, gru, mingru, lru, none", fixed=True)
    hidden_sizes: tuple[int, ...] = field(
        (128,),
        each(at_least(1)),
        each(at_most(_MOST_UNITS)),
        at_most_elements(_MOST_LAYERS),
        help="units of the encoder's dense layers",
        fixed=True,
    )
    core_size: int = field(
        128, at_least(1), at_most(_MOST_UNITS), help="units of the recurrent core", fixed=True
    )
    recurrence: str = field(
        "auto",
        one_of("auto", "scan", "pallas"),
        help="how an lstm runs over time: scan; pallas, a kernel for TPUs and GPUs; auto, the kernel on "
        "NVIDIA GPUs where it applies, else the scan (docs/performance.md)",
    )
    activation: str = field("tanh", help="after each dense layer: tanh, relu, silu, gelu", fixed=True)
    separate_value: bool = field(False, help="a second encoder and core for the value", fixed=True)
    head: str = field(
        "auto",
        help="auto (by the action space), categorical, multi_categorical, gaussian (clipped), "
        "tanh_gaussian (bounded)",
        fixed=True,
    )
    compute_dtype: str = field(
        "float32",
        one_of("float32", "bfloat16"),
        help="type in which the network computes; parameters stay float32",
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class NormalizeConfig:
    """Scaling by running statistics."""

    observations: bool = field(
        False,
        help="scale observations to mean 0 and standard deviation 1, from the second iteration on",
        fixed=True,
    )
    rewards: bool = field(
        False, help="divide rewards by the standard deviation of the discounted return", fixed=True
    )
    clip_observations: float = field(10.0, above(0), help="largest magnitude of a normalised observation")
    clip_rewards: float = field(
        0.0, at_least(0), help="largest magnitude of a normalised reward; 0: no limit"
    )


@dataclasses.dataclass(frozen=True)
class StopConfig:
    """Training ends at the first of these."""

    steps: int = field(1_000_000, at_least(1), help="environment steps, rounded up to whole iterations")
    seconds: float | None = field(
        None,
        above(0),
        help="seconds of training, after compilation and a first dispatch, without evaluations and "
        "checkpoints; none: no limit",
    )
    wall_seconds: float | None = field(
        None,
        above(0),
        help="seconds from the start of the process to its end, such as the time limit of a job: training "
        "ends early enough for an evaluation and a last checkpoint; none: no limit",
    )
    target_return: float | None = field(
        None, help="mean return of an evaluation; none: no limit", key="return"
    )


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """Where metrics go, and how often."""

    every_steps: int = field(50_000, at_least(1), help="environment steps between entries")
    writers: tuple[str, ...] = field(
        ("tensorboard", "jsonl"),
        each(one_of("tensorboard", "jsonl", "csv", "wandb", "mlflow", "neptune")),
        distinct(),
        help="where metrics go: tensorboard, jsonl, csv (files of the run's folder), wandb, mlflow, neptune "
        "(trackers; each needs its extra); () is none",
    )
    layers: bool = field(True, help="also the gradient's norm by layer")
    project: str = field("jaxrl", help="project or experiment in a tracker")
    name: str = field("", help="the run's name in a tracker; empty: the end of the folder's path")


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation during training."""

    every_steps: int = field(
        250_000, at_least(0), help="environment steps between evaluations; 0: only at the end"
    )
    episodes: int = field(64, at_least(1), at_most(_MOST_EPISODES), help="episodes per evaluation")
    sample: bool = field(
        False, help="draw actions, where a policy that always takes the most likely one gets stuck"
    )
    unseen: str = field(
        "",
        help="another environment with the same spaces, such as levels that training never shows; evaluated "
        "as well",
    )
    suite: str = field("", help="file or name of a suite that is played as well, by category")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What a run is resumed from."""

    every_steps: int = field(
        250_000, at_least(0), help="environment steps between checkpoints; 0: by time, and at the end"
    )
    every_seconds: float = field(
        60.0, at_least(0), help="seconds between checkpoints, whichever comes first; 0: by steps alone"
    )
    keep: int = field(3, at_least(1), help="recent checkpoints to keep, besides the best")


@dataclasses.dataclass(frozen=True)
class PopulationConfig:
    """Several runs trained as one program (docs/populations.md)."""

    seeds: int = field(
        1,
        at_least(1),
        at_most(_MOST_MEMBERS),
        help="train this many members, with `seed` and the numbers after it, each in a folder of its own",
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class StorageConfig:
    """A copy of the run's folder elsewhere."""

    sync_to: str = field(
        "",
        matches(r"((s3|gs)://[^/]+/.*[^/].*)?", "be s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"),
        help="where a copy of the run's folder is kept while it trains, such as s3://BUCKET/PREFIX "
        "(docs/storage.md); empty: nowhere",
    )
    sync_every_steps: int = field(500_000, at_least(1), help="environment steps between copies")


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """Traces and profiles of where the time goes."""

    start: int = field(0, at_least(0), help="the step with which a device trace begins")
    steps: int = field(
        0,
        at_least(0),
        help="steps of the trace, in whole iterations; 0: none, unless SIGUSR1 asks for one",
    )
    host: bool = field(False, help="a profile of the host's Python over the whole run")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A checked configuration: every field, the devices, and every derived count.

    An iteration is one rollout of all environments and the updates on it; an update is one optimiser step.
    """

    algorithm: str = field(
        "ppo", one_of("ppo"), help="what learns; its fields are in the section of that name", fixed=True
    )
    seed: int = field(0, between(0, 2**32 - 1), help="decides all random numbers", fixed=True)
    num_devices: int = field(
        0,
        at_least(0),
        at_most(_MOST_DEVICES),
        help="devices to train on; 0: all accelerators, or on CPU as many virtual devices as pay off",
    )
    hardware_profile: str = field(
        "none",
        one_of("none", "auto"),
        help="auto: jaxrl train takes as many environments as fit in nine tenths of the devices' memory, and "
        "minibatches in parts where they do not fit otherwise",
    )
    nonfinite: str = field(
        "halt",
        one_of("halt", "skip", "rollback"),
        help="what a NaN or an infinity in observations, rewards, losses or gradients does: halt saves the "
        "state before it and says where it came from, skip drops the updates it reaches, rollback returns to "
        "the last checkpoint and continues with other random numbers",
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
    notes: str = field("", help="free text that is stored with every checkpoint; verify-checkpoint shows it")
    env: EnvConfig
    host: HostConfig
    network: NetworkConfig
    normalize: NormalizeConfig
    ppo: PPOConfig
    stop: StopConfig
    log: LogConfig
    evaluate: EvaluateConfig
    checkpoint: CheckpointConfig
    storage: StorageConfig
    population: PopulationConfig
    profile: ProfileConfig
    device_count: int

    @property
    def learner(self) -> AlgorithmConfig:
        """The section of the algorithm."""
        section: AlgorithmConfig = getattr(self, self.algorithm)
        return section

    @property
    def envs_per_device(self) -> int:
        return self.env.num_envs // self.device_count

    @property
    def rollout_length(self) -> int:
        """Time steps of one rollout."""
        return self.learner.rollout_length

    @property
    def sequence_length(self) -> int:
        """Time steps through which gradients flow, from one stored carry to the next."""
        return self.learner.carry_interval

    @property
    def num_chunks(self) -> int:
        """Sequences into which one environment's rollout is cut."""
        return self.rollout_length // self.sequence_length

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps, over all environments and devices."""
        return self.env.num_envs * self.rollout_length

    @property
    def num_iterations(self) -> int:
        """Iterations that reach `stop.steps`; the last may go past it."""
        return math.ceil(self.stop.steps / self.steps_per_iteration)

    @property
    def updates_per_iteration(self) -> int:
        """Planned ones; an algorithm may stop early."""
        return self.learner.updates_per_iteration

    @property
    def steps_per_update(self) -> int:
        """Environment steps that one update learns from, over all devices."""
        return self.learner.steps_per_update(self.env.num_envs)

    @property
    def total_updates(self) -> int:
        return self.num_iterations * self.updates_per_iteration

    @property
    def log_iterations(self) -> int:
        """Iterations between log entries."""
        return math.ceil(self.log.every_steps / self.steps_per_iteration)

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
        intervals = (self.log_iterations, self.evaluate_iterations, self.checkpoint_iterations)
        following = [(iteration // every + 1) * every for every in intervals if every > 0]
        return min([*following, self.num_iterations])

    @property
    def profile_window(self) -> tuple[int, int]:
        """The iteration with which a trace begins, and how many are in it (0: no trace)."""
        per_iteration = self.steps_per_iteration
        return self.profile.start // per_iteration, math.ceil(self.profile.steps / per_iteration)
