"""The cells of an experiment: an architecture, with or without pretraining, one seed. Each is a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config
from jaxrl.config.errors import errors_as
from jaxrl.config.files import load_config
from jaxrl.config.level_datasets import LevelDataset
from jaxrl.config.listing import config_file
from jaxrl.experiments.experiment_options import WITH_PRETRAIN, ExperimentOptions
from jaxrl.runs.executor import RunNames

# What a cell runs, each a command of `jaxrl` that can be run again by itself.
PRETRAIN = "pretrain"
TRAIN = "train"
LATENCY = "latency"
EXPORT = "export"
SUITES = {"evaluate-test": "test", "evaluate-train": "train"}


@dataclass(frozen=True)
class ExperimentCell:
    """One run of an experiment.

    Attributes:
      mode: no_pretrain or with_pretrain.
    """

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
    """Everything that an experiment is going to train.

    Attributes:
      train, test: its levels.
      base: the configuration that all cells start from.
    """

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
        """The configuration of a cell's training.

        Args:
          with_suite: evaluate on the test levels too, whose suite must have been written.
          initialized: start from the clone.
        """
        return check_config(self._config_of(cell, with_suite, initialized))

    def _config_of(self, cell: ExperimentCell, with_suite: bool, initialized: bool) -> ConfigDict:
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
        return config

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

    def write_pretrain_config(self, cell: ExperimentCell) -> None:
        """Writes the config file of the command that pretrains."""
        file = cell.clone.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config_file(self.config(cell, with_suite=False)) + "\n")

    def to_json(self) -> Mapping[str, Any]:
        """The options, and what became of them."""
        return {"options": self.options.to_json(), "cells": [cell.name for cell in self.cells]}
