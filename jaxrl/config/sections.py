"""The checked configuration: frozen dataclasses with the fields of `default_config` and the derived counts.

A field's annotation is its declaration: type and range are read from here by `jaxrl.config.fields.check`.
What each field means is said beside its default, in `jaxrl.config.default_config`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from jaxrl.config.fields import above, at_least, between, distinct, each, one_of

Count = Annotated[int, at_least(0)]
Positive = Annotated[int, at_least(1)]
Unit = Annotated[float, between(0, 1)]

WRITERS = ("tensorboard", "jsonl", "csv", "wandb", "mlflow", "neptune")


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    name: str
    num_envs: Positive
    wrappers: tuple[str, ...]
    stagger: bool


@dataclasses.dataclass(frozen=True)
class HostConfig:
    overlap: bool
    fused: bool
    num_groups: Positive
    num_workers: Count
    timeout: Annotated[float, above(0)]


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Names of encoders, cores and activations are checked where they are registered, in `jaxrl.networks`."""

    encoder: str
    core: str
    hidden_sizes: Annotated[tuple[int, ...], each(at_least(1))]
    core_size: Positive
    recurrence: Annotated[str, one_of("scan", "pallas")]
    activation: str
    separate_value: bool
    head: str
    compute_dtype: Annotated[str, one_of("float32", "bfloat16")]


@dataclasses.dataclass(frozen=True)
class NormalizeConfig:
    observations: bool
    rewards: bool
    clip_observations: Annotated[float, above(0)]
    clip_rewards: Annotated[float, at_least(0)]


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    rollout_length: Positive
    num_epochs: Positive
    num_minibatches: Positive
    sequence_length: Count
    gradient_accumulation: Count
    learning_rate: Annotated[float, at_least(0)]
    schedule: Annotated[str, one_of("constant", "linear", "cosine")]
    warmup_updates: Count
    gamma: Unit
    gae_lambda: Unit
    clip_range: Annotated[float, above(0)]
    clip_value: bool
    normalize_advantages: bool
    entropy_coef: Annotated[float, at_least(0)]
    value_coef: Annotated[float, at_least(0)]
    max_grad_norm: Annotated[float, above(0)]
    target_kl: Annotated[float | None, above(0)]


@dataclasses.dataclass(frozen=True)
class StopConfig:
    """Training ends at the first of these. `target_return` is `stop.return`, a word Python reserves."""

    steps: Positive
    seconds: Annotated[float | None, above(0)]
    target_return: float | None


@dataclasses.dataclass(frozen=True)
class LogConfig:
    every_steps: Positive
    writers: Annotated[tuple[str, ...], each(one_of(*WRITERS)), distinct()]
    layers: bool
    project: str
    name: str


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    every_steps: Count
    episodes: Positive
    unseen: str


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    every_steps: Count
    keep: Positive


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    start: Count
    steps: Count
    host: bool


@dataclasses.dataclass(frozen=True)
class Config:
    """A checked configuration: the fields of `default_config`, the devices, and every derived count.

    An iteration is one rollout of all environments and the updates on it; an update is one optimiser step.
    """

    seed: Annotated[int, between(0, 2**32 - 1)]
    num_devices: Count
    nonfinite: Annotated[str, one_of("halt", "skip", "rollback")]
    init_from: str
    init_names: tuple[str, ...]
    env: EnvConfig
    host: HostConfig
    network: NetworkConfig
    normalize: NormalizeConfig
    ppo: PPOConfig
    stop: StopConfig
    log: LogConfig
    evaluate: EvaluateConfig
    checkpoint: CheckpointConfig
    profile: ProfileConfig
    device_count: Positive

    @property
    def envs_per_device(self) -> int:
        return self.env.num_envs // self.device_count

    @property
    def rollout_length(self) -> int:
        """Time steps of one rollout."""
        return self.ppo.rollout_length

    @property
    def sequence_length(self) -> int:
        """Time steps through which gradients flow."""
        return self.ppo.sequence_length or self.ppo.rollout_length

    @property
    def num_chunks(self) -> int:
        """Sequences into which one environment's rollout is cut."""
        return self.ppo.rollout_length // self.sequence_length

    @property
    def minibatch_envs_per_device(self) -> int:
        return self.envs_per_device // self.ppo.num_minibatches

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps, over all environments and devices."""
        return self.env.num_envs * self.ppo.rollout_length

    @property
    def num_iterations(self) -> int:
        """Iterations that reach `stop.steps`; the last may go past it."""
        return math.ceil(self.stop.steps / self.steps_per_iteration)

    @property
    def updates_per_iteration(self) -> int:
        """Planned ones: a KL stop makes fewer."""
        return self.ppo.num_epochs * self.ppo.num_minibatches

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
