"""The folder of an experiment, and its cells: an architecture, with or without pretraining, one seed.

Each cell is a run.
"""

from __future__ import annotations

import datetime
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config
from jaxrl.config.data_files import read_object
from jaxrl.config.errors import errors_as
from jaxrl.config.files import load_config
from jaxrl.config.level_datasets import LevelDataset
from jaxrl.config.local_files import is_remote, replace_text
from jaxrl.experiments.experiment_options import WITH_PRETRAIN, ExperimentOptions
from jaxrl.runs.child_process import take_lock
from jaxrl.runs.executor import RunNames
from jaxrl.runs.storage.copy import sync

_log = logging.getLogger(__name__)
_OPTIONS = "config.json"

# What a cell runs, each a command of `jaxrl` that can be run again by itself.
PRETRAIN = "pretrain"
TRAIN = "train"
LATENCY = "latency"
EXPORT = "export"
SUITES = {"evaluate-test": "test", "evaluate-train": "train"}


class ExperimentFolder:
    """NAME_TIMESTAMP: options, log and results; each file is written completely or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def new(cls, output: str, name: str) -> ExperimentFolder:
        """A folder that is not there yet; nothing is made."""
        if is_remote(output):
            raise ConfigError(
                f"`--output-dir` (={output!r}) must be a local folder; --s3-bucket keeps copies"
            )
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        return cls(Path(output).expanduser().absolute() / f"{name}_{stamp}")

    @classmethod
    def open(cls, given: str) -> tuple[ExperimentFolder, dict[str, Any]]:
        """An experiment that has begun, and its options; ConfigError if there is none."""
        path = Path(given).expanduser().absolute()
        try:
            options = read_object(path / _OPTIONS)["options"]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"`--resume-from` (={given!r}) is no experiment: {_OPTIONS} {error}") from error
        if not isinstance(options, dict):
            raise ConfigError(f"`--resume-from` (={given!r}) is no experiment: {_OPTIONS} holds no options")
        return cls(path), options

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Makes the folder, and keeps other processes out during the block.

        Raises:
          ConfigError: another process has it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be made: {error.strerror}") from error
        if (lock := take_lock(self.path / ".lock")) is None:
            raise ConfigError(f"another process runs the experiment {self.path}")
        with lock:
            yield

    def write(self, name: str, value: Mapping[str, Any] | str) -> None:
        """Writes a file: text, or JSON values."""
        text = value if isinstance(value, str) else json.dumps(value, indent=2) + "\n"
        replace_text(self.path / name, text)


def copy_files(folder: Path, target: str) -> None:
    """Copies the files of an experiment, without its cells' files, to another folder or a bucket.

    Raises:
      ConfigError: the target cannot be used.
      RunError: a file could not be copied.
    """
    with tempfile.TemporaryDirectory() as place:
        for file in folder.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, place)
        sync(place, target, tell=_log.debug)


@dataclass(frozen=True)
class ExperimentCell:
    """One run of an experiment; its mode is no_pretrain or with_pretrain."""

    architecture: str
    mode: str
    seed: int
    folder: Path

    @property
    def group(self) -> str:
        """The name of the cells that differ from this one in the seed alone."""
        return f"{self.architecture}/{self.mode}"

    @property
    def name(self) -> str:
        return f"{self.group}/seed_{self.seed}"

    @property
    def pretrains(self) -> bool:
        return self.mode == WITH_PRETRAIN

    @property
    def clone(self) -> Path:
        """The run folder of the pretraining."""
        return self.folder.with_name(f"{self.folder.name}_clone")


@dataclass(frozen=True)
class ExperimentPlan:
    """Everything that an experiment is going to train; all cells start from the configuration `base`."""

    options: ExperimentOptions
    folder: Path
    train: LevelDataset
    test: LevelDataset
    base: ConfigDict

    @classmethod
    def of(cls, options: ExperimentOptions, folder: Path) -> ExperimentPlan:
        """Reads the datasets; `require_networks` checks the architectures.

        Raises:
          ConfigError: a dataset or the configuration is wrong.
        """
        train = LevelDataset.of("--train-dataset", options.train_dataset)
        test = LevelDataset.of("--test-dataset", options.test_dataset)
        return cls(options, folder, train, test, load_config(options.config))

    @property
    def cells(self) -> list[ExperimentCell]:
        """All cells, in the order in which they run."""
        return [
            ExperimentCell(architecture, mode, seed, self._folder_of(architecture, mode, seed))
            for architecture in self.options.architectures
            for mode in self.options.modes
            for seed in self.options.seeds
        ]

    def _folder_of(self, architecture: str, mode: str, seed: int) -> Path:
        place = self.folder / architecture.replace(":", "_") / mode
        return place if len(self.options.seeds) == 1 else place / f"seed_{seed}"

    def suite(self, part: str) -> Path:
        """The file of the suite of the training or the test levels, "train" or "test"."""
        return self.folder / f"{part}_levels.yaml"

    def require_networks(self) -> None:
        """Raises ConfigError if there is no such architecture, or it does not suit what levels show."""
        cells = {cell.architecture: cell for cell in self.cells}.values()
        configs = [self.config(cell, with_suite=False) for cell in cells]
        with errors_as(ConfigError, "`--architectures`", ConfigError):
            RunNames.of(configs)

    def config(self, cell: ExperimentCell, with_suite: bool = True, initialized: bool = False) -> Config:
        """The configuration of a cell's training; `initialized` starts it from the clone.

        `with_suite` evaluates on the test levels too, whose suite must have been written.
        """
        given = self.options
        config = self.base.copy_and_resolve_references()
        config.seed = cell.seed
        config.env.name = self.train.environment()
        config.env.num_envs = given.num_envs
        config.network.architecture = cell.architecture
        config.stop.steps = given.total_timesteps
        config.evaluate.every_steps = given.eval_freq
        config.evaluate.suite = str(self.suite("test")) if with_suite else ""
        config.checkpoint.every_steps = given.save_freq
        config.log.writers = tuple(dict.fromkeys((*config.log.writers, "jsonl", "tensorboard")))
        if given.num_devices:
            config.num_devices = given.num_devices
        if given.mixed_precision:
            config.network.compute_dtype = "bfloat16"
        if given.bucket:
            config.storage.sync_to = self.copy_of(cell)
            config.storage.sync_every_steps = given.s3_sync_freq
        if initialized:
            config.init_from = str(cell.clone)
        return check_config(config)

    @property
    def copy(self) -> str:
        """The place of the copy of the experiment's folder; "" for none."""
        if not self.options.bucket:
            return ""
        prefix = self.options.s3_prefix.strip("/")
        return "s3://" + "/".join([self.options.bucket, *filter(None, [prefix]), self.folder.name])

    def copy_of(self, cell: ExperimentCell) -> str:
        """The place of the copy of a cell's folder; "" for none."""
        return self.copy and f"{self.copy}/{cell.folder.relative_to(self.folder).as_posix()}"

    def commands(self, cell: ExperimentCell) -> dict[str, list[str]]:
        """The arguments of `jaxrl` by stage, in the order in which they run."""
        run = str(cell.folder)
        trust = ["--trust"] if ":" in cell.architecture else []
        found = {}
        if cell.pretrains:
            found[PRETRAIN] = [
                "pretrain",
                f"--config={cell.clone.with_suffix('.py')}",
                f"--data={self.options.replay_data_dir}",
                f"--bc-epochs={self.options.bc_epochs}",
                f"--bc-batch-size={self.options.bc_batch_size}",
                f"--workdir={cell.clone}",
            ]
        found[TRAIN] = ["train", f"--config={cell.folder.with_suffix('.py')}", f"--workdir={run}"]
        for stage, part in SUITES.items():
            found[stage] = ["evaluate", run, f"--suite={self.suite(part)}", *trust]
        found[LATENCY] = ["inference-benchmark", f"--workdir={run}", "--batch=1", *trust]
        found[EXPORT] = ["export", run, "--format=stablehlo", *trust]
        return found

    def to_json(self) -> Mapping[str, Any]:
        """The options, and what became of them."""
        return {"options": self.options.to_json(), "cells": [cell.name for cell in self.cells]}
