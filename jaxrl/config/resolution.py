"""The configuration: its defaults (`default_config`) and its one check (`resolve`).

Everything downstream sees only the frozen `Config`; nothing re-derives a count. This module imports no
jax, so that bad input is answered at once.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any, get_type_hints

from ml_collections import ConfigDict, config_dict

from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import check
from jaxrl.config.sections import (
    CheckpointConfig,
    Config,
    EnvConfig,
    EvaluateConfig,
    HostConfig,
    LogConfig,
    NetworkConfig,
    NormalizeConfig,
    Positive,
    PPOConfig,
    ProfileConfig,
    StopConfig,
)


def default_config() -> ConfigDict:
    """Returns every field with its default; `configs/*.py` start from this and change what they need."""
    c = ConfigDict()
    c.seed = 0
    # Devices to train on; 0 takes all accelerators, or on CPU as many virtual devices as pay off.
    c.num_devices = 0
    # What a NaN or an infinity in observations, rewards, losses or gradients does: `halt` saves the state
    # before it and says where it came from, `skip` drops the updates it reaches, `rollback` goes back to the
    # last checkpoint and on with other random numbers.
    c.nonfinite = "halt"
    # A fresh run starts from the parameters and normaliser of this run folder, as far as the names of arrays
    # match one of `init_names`, such as "params/encoder*". A run that resumes does not read it.
    c.init_from = ""
    c.init_names = ("*",)

    c.env = ConfigDict()
    c.env.name = "gymnax:CartPole-v1"  # suite:Name or suite:Name(argument=value)
    c.env.num_envs = 64
    c.env.wrappers = ()  # names from envs.wrappers, each "name" or "name(argument=value)"
    c.env.stagger = True  # cut first episodes off at random, where there is a time limit, so that ends spread

    # Only for environments on the host: `envpool:` and `gymnasium:`.
    c.host = ConfigDict()
    c.host.overlap = True  # collect the next rollout while learning from this one, which is one iteration old
    c.host.fused = True  # on CPU a rollout is one program that steps the environments, where that is faster
    c.host.num_groups = 2  # one group steps while the policy chooses for another; 1 steps all in turn
    c.host.num_workers = 0  # processes or threads that step environments, over all groups; 0: by the cores
    c.host.timeout = 60.0  # seconds after which an environment that does not answer ends the run

    c.network = ConfigDict()
    # auto (by the observation), mlp, minatar, nature, impala, identity; "key=name,key=name" for dicts
    c.network.encoder = "auto"
    c.network.core = "lstm"  # lstm, gru, mingru, lru, none
    c.network.hidden_sizes = (128,)
    c.network.core_size = 128
    # How an lstm runs over time: `scan`, or `pallas`, a kernel for TPUs (docs/performance.md).
    c.network.recurrence = "scan"
    c.network.activation = "tanh"
    c.network.separate_value = False
    # auto (by the action space), categorical, multi_categorical, gaussian (clipped), tanh_gaussian (bounded)
    c.network.head = "auto"
    c.network.compute_dtype = "float32"

    c.normalize = ConfigDict()
    c.normalize.observations = False
    c.normalize.rewards = False
    c.normalize.clip_observations = 10.0
    c.normalize.clip_rewards = 0.0  # 0: no clipping

    c.ppo = ConfigDict()
    c.ppo.rollout_length = 128
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 4
    c.ppo.sequence_length = 0  # 0: the whole rollout
    # Parts of a minibatch whose gradients are summed up one after the other; 0: as many as are fastest here.
    c.ppo.gradient_accumulation = 0
    c.ppo.learning_rate = 2.5e-4
    c.ppo.schedule = "linear"  # constant, linear, cosine
    c.ppo.warmup_updates = 0
    c.ppo.gamma = 0.99
    c.ppo.gae_lambda = 0.95
    c.ppo.clip_range = 0.2
    c.ppo.clip_value = False
    c.ppo.normalize_advantages = True
    c.ppo.entropy_coef = 0.01
    c.ppo.value_coef = 0.5
    c.ppo.max_grad_norm = 0.5
    c.ppo.target_kl = config_dict.placeholder(float)  # None: no stop

    c.stop = ConfigDict()
    c.stop.steps = 1_000_000
    c.stop.seconds = config_dict.placeholder(float)
    c.stop["return"] = config_dict.placeholder(float)  # greedy evaluation return

    c.log = ConfigDict()
    c.log.every_steps = 50_000
    # Where metrics go: any of tensorboard, jsonl, csv (files of the run's folder), wandb, mlflow, neptune
    # (trackers; each needs its extra); () is none.
    c.log.writers = ("tensorboard", "jsonl")
    c.log.layers = True  # also the gradient's norm by layer
    c.log.project = "jaxrl"  # of a tracker: the project or experiment
    c.log.name = ""  # of a tracker: the run's name; empty: the end of the folder's path

    c.evaluate = ConfigDict()
    c.evaluate.every_steps = 250_000  # 0: only at the end
    c.evaluate.episodes = 64
    # Another environment with the same spaces, such as levels that training never shows; evaluated as well.
    c.evaluate.unseen = ""

    c.checkpoint = ConfigDict()
    c.checkpoint.every_steps = 250_000  # 0: only at the end
    c.checkpoint.keep = 3

    c.profile = ConfigDict()
    c.profile.start = 0  # the step with which a device trace begins
    c.profile.steps = 0  # steps of the trace, in whole iterations; 0: none, unless SIGUSR1 asks for one
    c.profile.host = False  # a profile of the host's Python over the whole run
    return c


_DERIVED = tuple(name for name, member in vars(Config).items() if isinstance(member, property))
_TOP_LEVEL = ("seed", "num_devices", "nonfinite", "init_from", "init_names")
_SECTIONS: dict[str, Any] = {
    "env": EnvConfig,
    "host": HostConfig,
    "network": NetworkConfig,
    "normalize": NormalizeConfig,
    "ppo": PPOConfig,
    "stop": StopConfig,
    "log": LogConfig,
    "evaluate": EvaluateConfig,
    "checkpoint": CheckpointConfig,
    "profile": ProfileConfig,
}


def resolve(config: ConfigDict, device_count: int) -> Config:
    """Checks everything that can be checked before compilation and returns the frozen configuration.

    Args:
      config: as `default_config` returns it, with changes; missing fields take their defaults.
      device_count: devices that share the environments, over all processes.

    Raises:
      ConfigError: an unknown key, a wrong type or range, counts that do not divide, or an environment
        that cannot be made.
    """
    resolved = _build(config.to_dict(), device_count)
    _check_environment(resolved)
    return resolved


def check_config(config: ConfigDict) -> None:
    """Raises ConfigError where `resolve` would on any number of devices; without making the environment."""
    _build(config.to_dict(), device_count=1)


def largest_device_count(config: ConfigDict, available: int, processes: int = 1) -> int:
    """Returns the largest number of devices, at most `available`, that can share the environments evenly.

    Every device needs a multiple of `ppo.num_minibatches * ppo.gradient_accumulation` environments, and
    each of several processes as many devices as the others.

    Raises:
      ConfigError: the configuration is wrong on any number of devices, or on so many processes.
    """
    c = _build(config.to_dict(), device_count=1)
    groups = c.env.num_envs // (c.ppo.num_minibatches * max(1, c.ppo.gradient_accumulation))
    if groups % processes:
        raise ConfigError(
            f"`env.num_envs` (={c.env.num_envs}) cannot be shared by {processes} processes: with "
            f"`ppo.num_minibatches` (={c.ppo.num_minibatches}) the number of processes must divide {groups}"
        )
    return max(n for n in range(processes, max(processes, available) + 1, processes) if groups % n == 0)


def to_json(config: Config) -> dict[str, Any]:
    """Returns plain JSON values: the fields under the names users write, `device_count`, and `derived`."""

    return _plain(config) | {"derived": {name: getattr(config, name) for name in _DERIVED}}


def from_json(data: Mapping[str, Any]) -> Config:
    """Inverse of `to_json`. Fields that the data lacks take their defaults; `derived` is computed anew.

    Raises:
      ConfigError: the data is not what `to_json` wrote.
    """
    fields = {k: v for k, v in data.items() if k not in ("device_count", "derived")}
    return _build(fields, data.get("device_count", 1))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {_key(f): _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def versions() -> dict[str, str]:
    """Returns the versions of Python, of this package and of the installed packages that decide results."""
    names = ("jaxrl", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "gymnax", "envpool", "numpy")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _key(field: dataclasses.Field[Any]) -> str:
    """The key of an attribute in the configuration: the same word, where Python does not reserve it."""
    return "return" if field.name == "target_return" else field.name


@functools.cache
def field_annotations() -> dict[str, Any]:
    """Returns every field's annotation by its dotted name, e.g. `ppo.gamma`; see `fields.check`."""
    hints = get_type_hints(Config, include_extras=True)
    found = {name: hints[name] for name in _TOP_LEVEL}
    for section, cls in _SECTIONS.items():
        hints = get_type_hints(cls, include_extras=True)
        found.update({f"{section}.{_key(f)}": hints[f.name] for f in dataclasses.fields(cls)})
    return found


def _build(data: Mapping[str, Any], device_count: int) -> Config:
    """Checks keys, types, ranges and divisibility."""
    annotations = field_annotations()
    given = _flatten(data)
    for name in given:
        if name not in annotations:
            raise ConfigError(f"`{name}` is no field of the configuration{did_you_mean(name, annotations)}")
    values = _flatten(default_config().to_dict()) | given
    checked = {name: check(name, values[name], hint) for name, hint in annotations.items()}
    sections = {
        section: cls(**{f.name: checked[f"{section}.{_key(f)}"] for f in dataclasses.fields(cls)})
        for section, cls in _SECTIONS.items()
    }
    config = Config(
        **{name: checked[name] for name in _TOP_LEVEL},
        device_count=check("device_count", device_count, Positive),
        **sections,
    )
    _check_counts(config)
    if config.stop.target_return is not None and not config.evaluate.every_steps:
        raise ConfigError(
            f"`stop.return` (={config.stop.target_return}) needs evaluations: `evaluate.every_steps` (=0)"
        )
    return config


def _flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": field for name, field in value.items()})
        elif key in _SECTIONS:
            raise ConfigError(f"`{key}` (={value!r}) must be a section with fields of its own")
        else:
            flat[str(key)] = value
    return flat


def _check_counts(c: Config) -> None:
    """Devices, minibatches and the parts of an accumulated minibatch take whole environments."""
    p = c.ppo
    envs = f"`env.num_envs` (={c.env.num_envs})"
    per_device = envs if c.device_count == 1 else f"{envs} / devices (={c.device_count})"
    per_minibatch = f"{per_device} / `ppo.num_minibatches` (={p.num_minibatches})"
    rollout = f"`ppo.rollout_length` (={p.rollout_length})"
    rules = (
        ("num_devices", c.device_count, c.env.num_envs, envs),
        ("ppo.num_minibatches", p.num_minibatches, c.envs_per_device, per_device),
        (
            "ppo.gradient_accumulation",
            max(1, p.gradient_accumulation),
            c.minibatch_envs_per_device,
            per_minibatch,
        ),
        ("ppo.sequence_length", c.sequence_length, p.rollout_length, rollout),
    )
    for name, divisor, count, described in rules:
        if count == 0 or count % divisor:
            raise ConfigError(f"`{name}` (={divisor}) must divide {described}")


def _check_environment(c: Config) -> None:
    # Here and not above: environments import jax.
    from envs import registry

    for field, value, wrappers in (("name", c.env.name, ()), ("wrappers", c.env.wrappers, c.env.wrappers)):
        _spec(f"env.{field}", c.env.name, value, wrappers)
    if c.evaluate.unseen:
        check_same_spaces("evaluate.unseen", c.evaluate.unseen, c.env)
    if registry.is_host(c.env.name):
        _check_host(c)


def check_same_spaces(field: str, name: str, env: EnvConfig) -> None:
    """Raises ConfigError unless the environment `name` has the spaces of that of the configuration."""
    other, own = (_spec(field, x, name, env.wrappers) for x in (name, env.name))
    for what in ("observation_space", "action_space"):
        if getattr(other, what) != getattr(own, what):
            raise ConfigError(f"`{field}` (={name!r}) has another {what} than `env.name` (={env.name!r})")


def _spec(field: str, name: str, value: Any, wrappers: tuple[str, ...]) -> Any:
    from envs import registry

    try:
        return registry.spec_of(name, wrappers)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"`{field}` (={value!r}): {' '.join(str(error).split())}") from error


def _check_host(c: Config) -> None:
    """Groups have the same number of environments and of workers."""
    groups, workers = c.host.num_groups, c.host.num_workers
    if c.env.num_envs % groups:
        raise ConfigError(f"`host.num_groups` (={groups}) must divide `env.num_envs` (={c.env.num_envs})")
    if workers % groups:
        raise ConfigError(f"`host.num_groups` (={groups}) must divide `host.num_workers` (={workers})")
