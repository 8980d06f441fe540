"""A trainer at work in the folder of its run, and how that ends."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from jaxrl.config import Config, ConfigError, to_json, versions
from jaxrl.config.errors import RunError
from jaxrl.envs.adapters.deferred import deferred_imports
from jaxrl.parallel import process_group
from jaxrl.parallel.process_exit import before_leaving
from jaxrl.reporting.display import terminal
from jaxrl.reporting.writers import MultiWriter, open_writers
from jaxrl.runs.commits import commits
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.origin import origin
from jaxrl.runs.records import MetricsTail
from jaxrl.training.assembly import Assembly
from jaxrl.training.benchmark_metrics import benchmark_metrics
from jaxrl.training.mirror import Mirror
from jaxrl.training.trainer import Trainer

# tensorboardX imports them for buckets if they are installed: three quarters of the time that it takes.
_CLIENTS_OF_BUCKETS = ("boto3", "google.cloud.storage")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run.

    Attributes:
      exit_code: 0, or 128 + the number of the signal that ended it.
      folder: where it is.
      resumable: true if a signal, or the time of the process, ended it before its budget was used up.
      needs_trust: true if its configuration names modules, which other commands import with --trust only.
      has_tensorboard: true if it wrote files for TensorBoard.
      is_first: true if this is the first process of the run, which speaks for all.
    """

    exit_code: int
    folder: str
    resumable: bool
    needs_trust: bool
    has_tensorboard: bool
    is_first: bool


@contextlib.contextmanager
def run_writers(
    folder: RunFolder, config: Config, highlights: Sequence[tuple[str, str]], network: str
) -> Iterator[MultiWriter]:
    """Opens the display and the writers of a run in its folder, and the copy of that in a bucket."""
    before_leaving(terminal.restore_before_exit)
    mirrors = []
    if target := config.storage.sync_to:
        mirrors = [Mirror(os.fspath(folder.path), target, folder.identity, config.storage.sync_every_steps)]
    with (
        folder.logs() as logs,
        open_writers(folder.path, config, logs, highlights, network, mirrors) as writer,
    ):
        yield writer


def train_in(folder: RunFolder, trainer: Trainer, assembly: Assembly) -> dict[str, Any]:
    """Trains to the end or to a signal; returns the summary, which the folder then has as well.

    Raises:
      RunError: training cannot continue, or the summary cannot be written.
    """
    trainer.start()
    steps_at_start = trainer.steps
    folder.write_config(trainer.config)
    log.info("configuration: %s", json.dumps(to_json(trainer.config)))
    log.info("on %s with %s", assembly.topology.description, json.dumps(versions()))
    log.info("from commits %s", json.dumps(commits()))
    log.info("started as %s", json.dumps(origin()))
    if process_group.is_first():
        _preload(trainer.config.log.writers)
    summary = trainer.fit()
    stop = trainer.config.stop
    if trainer.steps > steps_at_start or not folder.has_summary:
        try:
            if not trainer.interrupted:
                folder.write_summary(summary)
            if stop.seconds is not None or stop.wall_seconds is not None:
                _write_benchmark_metrics(folder, summary, assembly)
        except ConfigError as error:
            raise RunError(f"training is done and saved, but {error}") from error
    trainer.writer.finish(summary)
    return summary


def _write_benchmark_metrics(folder: RunFolder, summary: Mapping[str, Any], assembly: Assembly) -> None:
    _, rows = MetricsTail(epath.Path(folder.log_folder)).poll()
    seconds = assembly.coordinator.trained_seconds
    folder.write_report("benchmark_metrics", benchmark_metrics(summary, seconds, rows))


def _preload(writers: Sequence[str]) -> None:
    """Begins to import what the first row and checkpoint need, while XLA compiles outside of Python."""
    threading.Thread(target=_import_late_packages, args=("tensorboard" in writers,), name="imports").start()


def _import_late_packages(tensorboard: bool) -> None:
    # The code that needs a package imports it again, and reports why that fails.
    if tensorboard:
        with contextlib.suppress(Exception), deferred_imports(*_CLIENTS_OF_BUCKETS):
            importlib.import_module("tensorboardX")
    with contextlib.suppress(Exception):
        importlib.import_module("orbax.checkpoint")
