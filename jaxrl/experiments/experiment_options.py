"""The options of an experiment, each declared once: flags and YAML files have the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl.config.data_files import read_yaml
from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.config.fields import (
    above,
    at_least,
    at_most,
    between,
    bounds,
    declarations,
    distinct,
    each,
    field,
    matches,
    one_of,
)
from jaxrl.experiments.matrix import COLUMNS, Weights
from jaxrl.reporting.logs import LEVELS

NO_PRETRAIN = "no_pretrain"
WITH_PRETRAIN = "with_pretrain"
_PLACES = ("config", "train_dataset", "test_dataset", "replay_data_dir")
_JAX_SHARES = (
    "JAX has one backend for distribution: every device that a process sees shares the environments, "
    "see docs/multihost.md; leave the flag out"
)
_MOST = 2**31 - 1
_MOST_JOBS = 1024
_NAME = matches(r"[A-Za-z0-9][A-Za-z0-9._-]*", "consist of letters, digits, points, underscores and hyphens")


@dataclasses.dataclass(frozen=True)
class ExperimentOptions:
    """The architectures, levels, budgets and weights of an experiment."""

    experiment_name: str = field("", _NAME, help="its name, with which its folder begins (required)")
    architectures: tuple[str, ...] = field(
        (),
        distinct(),
        help="names of architectures (jaxrl architectures lists them), or module:attribute (required)",
    )
    train_dataset: str = field(
        "", help="folder of levels for training, one folder per category; train: the shipped ones (required)"
    )
    test_dataset: str = field("", help="unseen levels; test: the shipped ones (required)")
    config: str = field("ppo_architectures", help="the configuration that cells start from")
    total_timesteps: int = field(10_000_000, at_least(1), help="environment steps of each cell")
    num_envs: int = field(64, *bounds(1, _MOST), help="environments")
    eval_freq: int = field(100_000, at_least(1), help="environment steps between evaluations on test levels")
    save_freq: int = field(500_000, at_least(0), help="environment steps between checkpoints; 0: by time")
    test_pretraining: bool = field(False, help="every architecture with and without pretraining")
    no_pretraining: bool = field(False, help="without, also where --replay-data-dir is given")
    replay_data_dir: str = field("", help="demonstrations from which cells with pretraining start")
    bc_epochs: int = field(10, *bounds(1, _MOST), help="passes of pretraining over them")
    bc_batch_size: int = field(64, *bounds(1, _MOST), help="steps of an update of pretraining")
    num_devices: int | None = field(
        None, *bounds(0, 4096), help="devices of a cell, also --num-gpus; 0: the CPU; none: all there are"
    )
    jobs: int | None = field(
        None,
        *bounds(1, _MOST_JOBS),
        help="concurrent cells, each with its own part of the cores or of the GPUs; none: as "
        "many as can have --num-devices GPUs each, else one",
    )
    ray_address: str = field(
        "",
        help="a Ray cluster that runs the cells: HOST:PORT, ray://HOST:PORT, auto, or local "
        "for a new Ray on this machine; empty: none",
    )
    cpus_per_cell: int = field(1, *bounds(1, _MOST_JOBS), help="of Ray: cores that each cell gets")
    gpus_per_cell: float | None = field(
        None, *bounds(0, _MOST_JOBS), help="of Ray: GPUs, or a part of one; none: 1 if the cluster has any"
    )
    mixed_precision: bool = field(False, help="networks compute in bfloat16")
    seeds: tuple[int, ...] = field(
        (0,), each(at_least(0)), each(at_most(_MOST)), distinct(), help="a cell for each"
    )
    hardware_profile: str = field(
        "auto",
        one_of("auto"),
        help="auto: the devices there are; all cells keep the number of environments, so that they compare",
    )
    s3_bucket: str = field("", help="bucket where cells keep a copy of their folder; empty or None: off")
    s3_prefix: str = field("experiments/", help="what the copies' names begin with")
    s3_sync_freq: int = field(500_000, at_least(1), help="environment steps between copies")
    output_dir: str = field("experiments", help="parent of the experiment's folder")
    episodes: int = field(100, *bounds(1, 2**24), help="episodes of each category at the end")
    threshold: float = field(
        0.5, between(0, 1), help="success on test levels that counts as learnt, for the steps to it"
    )
    trace_level: str = field("info", one_of(*LEVELS), help="of the log, also --debug")
    weight_success: float = field(0.40, at_least(0), help="weight of success on test levels")
    weight_steps: float = field(0.20, at_least(0), help="weight of the steps to the threshold")
    weight_gap: float = field(0.15, at_least(0), help="weight of the gap between training and test levels")
    weight_latency: float = field(0.15, at_least(0), help="weight of the latency of acting")
    weight_parameters: float = field(0.10, at_least(0), help="weight of the number of parameters")
    move: float = field(
        0.10, above(0), at_most(1), help="how far a weight is moved to see if the winner changes"
    )

    def __post_init__(self) -> None:
        for name in ("experiment_name", "architectures", "train_dataset", "test_dataset"):
            if not getattr(self, name):
                raise ConfigError(f"`{flag_of(name)}` is missing: {helps()[name]}")
        for declared in declarations(ExperimentOptions):
            declared.check(getattr(self, declared.attribute))
        if self.test_pretraining and self.no_pretraining:
            raise ConfigError("`--test-pretraining` and `--no-pretraining` exclude each other: leave one out")
        if self.test_pretraining and not self.replay_data_dir:
            raise ConfigError("`--test-pretraining` needs demonstrations: --replay-data-dir=DIR")
        if self.ray_address and self.jobs is not None:
            raise ConfigError(
                "`--jobs` is for this machine: Ray runs as many as --cpus-per-cell leaves room for"
            )
        if sum(self.weights.values()) <= 0:
            raise ConfigError("the weights of an experiment must not all be 0")

    @property
    def modes(self) -> tuple[str, ...]:
        """With or without pretraining, or both."""
        if self.test_pretraining:
            return NO_PRETRAIN, WITH_PRETRAIN
        pretrains = self.replay_data_dir and not self.no_pretraining
        return (WITH_PRETRAIN,) if pretrains else (NO_PRETRAIN,)

    @property
    def weights(self) -> Weights:
        """The weight of each column of the decision matrix."""
        return {name: getattr(self, f"weight_{name}") for name in COLUMNS}

    @property
    def bucket(self) -> str:
        """The bucket, "" for none."""
        return "" if self.s3_bucket.lower() == "none" else self.s3_bucket

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def flag_of(name: str) -> str:
    """The flag of a field."""
    return f"--{name.replace('_', '-')}"


def helps() -> dict[str, str]:
    """The meaning of each option."""
    return {declared.attribute: declared.help for declared in declarations(ExperimentOptions)}


def fields_of(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of fields that a file or a command line gives, under any name of an option.

    Names may have hyphens; what has no value is left out; `num-gpus` and `debug` stand for fields.

    Raises:
      ConfigError: an unknown name, or two for one option.
    """
    values = {str(name).replace("-", "_"): value for name, value in given.items() if value is not None}
    if "distributed_backend" in values:
        raise ConfigError(f"`--distributed-backend`: {_JAX_SHARES}")
    gpus = values.pop("num_gpus", None)
    debug = values.pop("debug", False)
    if gpus is not None and values.setdefault("num_devices", gpus) != gpus:
        raise ConfigError("`--num-gpus` and `--num-devices` are one option: leave one out")
    if not isinstance(debug, bool):
        raise ConfigError(f"{source}: `debug` (={debug!r}) must be true or false")
    if debug:
        values["trace_level"] = "debug"
    known = helps()
    for name in values:
        if name not in known:
            raise ConfigError(f"{source}: unknown option `{name}`{did_you_mean(name, known)}")
    return values


def from_mapping(given: Mapping[str, Any], source: str) -> ExperimentOptions:
    """The options of a file or a command line, by the names that `fields_of` knows.

    Raises:
      ConfigError: an unknown name or a wrong value.
    """
    fields = fields_of(given, source).items()
    values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in fields}
    for name in ("architectures", "seeds"):
        if name in values and not isinstance(values[name], tuple):
            values[name] = (values[name],)
    from jaxrl.config.level_datasets import absolute  # imports jax, which `--help` does not need

    for name in _PLACES:
        # Cells may run elsewhere, and a resumed experiment from another folder.
        if isinstance(values.get(name), str):
            values[name] = absolute(values[name])
    return ExperimentOptions(**values)


def read_options(path: str) -> dict[str, Any]:
    """The options in a YAML file, by the names of fields.

    Raises:
      ConfigError: it cannot be read, holds none, or one that is unknown.
    """
    with errors_as(ConfigError, f"the experiment {path} cannot be read", OSError, ValueError):
        found = read_yaml(path)
    if not isinstance(found, dict):
        raise ConfigError(f"the experiment {path} must be a mapping of options to values")
    return fields_of(found, path)
