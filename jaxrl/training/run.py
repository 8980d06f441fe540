"""One training run from a config and a folder to a summary: folder, writers, trainer."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, resolve, to_json, versions
from jaxrl.config.construction import needs_trust
from jaxrl.config.errors import RunError
from jaxrl.config.resolution import stage_configs
from jaxrl.envs.adapters.suite import deferred_imports
from jaxrl.envs.pictures import layout_notes
from jaxrl.metrics import resources
from jaxrl.metrics.tracing import host_profile
from jaxrl.parallel import process_group
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.parallel.process_exit import before_leaving, watch_progress
from jaxrl.parallel.processes import Processes
from jaxrl.reporting.display import live_panel
from jaxrl.reporting.writers import MultiWriter, open_writers, require_packages
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.records import MetricsTail
from jaxrl.runs.signals import Interruption
from jaxrl.runs.storage.bucket import require_client
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import find_checkpoint
from jaxrl.training.device_count import choose_devices
from jaxrl.training.mirror import Mirror
from jaxrl.training.start import require_warm_start, with_stored_plan
from jaxrl.training.trainer import Trainer

# tensorboardX imports them for buckets if they are installed: three quarters of the time that it takes.
_CLIENTS_OF_BUCKETS = ("boto3", "google.cloud.storage")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run.

    Attributes:
      exit_code: 0, or 128 + the number of the signal that ended it.
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


@dataclass(frozen=True)
class Invocation:
    """The way in which a run was started.

    Attributes:
      debug: name the operation too, if a value was not finite.
      processes: which others take part; all must be given the same configuration.
      process_started: the time of `time.perf_counter` from which `stop.wall_seconds` counts; None is now.
      notes: lines to show first.
    """

    debug: bool = False
    processes: Processes = field(default_factory=Processes)
    process_started: float | None = None
    notes: tuple[str, ...] = ()


def run(
    config: ConfigDict, workdir: str, interruption: Interruption, invocation: Invocation = Invocation()
) -> RunOutcome:
    """Trains, or resumes training, in `workdir`; `Trainer.start` says from where.

    Args:
      workdir: the run's folder; with several processes the first one's counts.
      interruption: asks the training to save and stop.

    Raises:
      ConfigError: the configuration or the folder is wrong.
      RunError: training cannot continue.
    """
    processes = invocation.processes
    with process_group.join(processes):
        resolved = resolve(config, choose_devices(config, processes.num_processes))
        require_packages(resolved.log.writers)
        require_client(resolved.storage.sync_to)
        use_compilation_cache()
        folder = RunFolder(_agree_on_folder(resolved, workdir), resolved.checkpoint.keep, interruption)
        resolved = with_stored_plan(resolved, folder)
        assembly = Assembly.build(stage_configs(resolved)[0], interruption, invocation.process_started)
        # Before there is a folder to clear away.
        process_group.by_first(lambda: _require_source(resolved, folder, assembly))
        folder.create()
        with folder.lock():
            folder.require_same(resolved)
            runtime = assembly.runtime
            highlights = runtime.learning.per_device.highlights
            with (
                run_writers(folder, assembly.config, highlights, runtime.agent.description) as writer,
                watch_progress(assembly.clock.idle, processes.watchdog),
                host_profile(
                    folder.log_folder, resolved.profile.host and process_group.is_first()
                ) as host_table,
            ):
                for line in invocation.notes:
                    writer.message(line)
                writer.message(f"run folder: {folder.path}")
                for line in layout_notes(runtime.spec.observation_space):
                    writer.message(line)
                trainer = Trainer(resolved, folder, writer, assembly, invocation.debug)
                summary = train_in(folder, trainer, assembly)
            print(*host_table, sep="\n", end="\n" if host_table else "")
            reason = summary["stop_reason"]
            return RunOutcome(
                exit_code=interruption.exit_code if reason == interruption.name else 0,
                folder=str(folder.path),
                resumable=reason in (interruption.name, "wall_seconds"),
                needs_trust=needs_trust(resolved),
                has_tensorboard="tensorboard" in resolved.log.writers,
                is_first=process_group.is_first(),
            )


def _agree_on_folder(config: Config, workdir: str) -> str:
    """The folder for all processes; ConfigError if they have not been given the same configuration."""
    digest = hashlib.blake2b(json.dumps(to_json(config)).encode(), digest_size=16).hexdigest()
    first, *others = process_group.everywhere(
        {"settings": digest, "workdir": workdir, "versions": versions()}
    )
    for index, other in enumerate(others, 1):
        for name in ("settings", "versions"):
            if other[name] != first[name]:
                raise ConfigError(f"process {index} was started with other {name} than process 0")
    return str(first["workdir"])


def _require_source(config: Config, folder: RunFolder, assembly: Assembly) -> None:
    """Raises ConfigError if a fresh run finds no `resume_from`, `init_from` or teacher that fits."""
    if folder.has_checkpoints:
        return
    if config.resume_from:
        find_checkpoint("resume_from", config.resume_from)
    field, teacher = assembly.runtime.learning.algorithm.teacher
    if teacher and not config.resume_from:
        find_checkpoint(field, teacher)
    if config.init_from:
        learner = assembly.runtime.learning.abstract_state().learner
        require_warm_start(config.init_from, config.init_names, learner)


@contextlib.contextmanager
def run_writers(
    folder: RunFolder, config: Config, highlights: Sequence[tuple[str, str]], network: str
) -> Iterator[MultiWriter]:
    """Opens the display and the writers of a run in its folder, and the copy of that in a bucket.

    Only the first of several processes shows and writes metrics.
    """
    if not process_group.is_first():
        yield MultiWriter(())
        return
    before_leaving(live_panel.restore_before_exit)
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
        # While XLA compiles outside of Python.
        writes_tensorboard = "tensorboard" in trainer.config.log.writers
        threading.Thread(target=_import_late_packages, args=(writes_tensorboard,), name="imports").start()
    summary = trainer.fit()
    stop = trainer.config.stop
    if trainer.steps > steps_at_start or not folder.has_summary:
        try:
            if not trainer.interrupted:
                folder.write_summary(summary)
            if stop.seconds is not None or stop.wall_seconds is not None:
                _, rows = MetricsTail(epath.Path(folder.log_folder)).poll()
                seconds = assembly.coordinator.status.trained_seconds
                folder.write_report("benchmark_metrics", benchmark_metrics(summary, seconds, rows))
        except ConfigError as error:
            raise RunError(f"training is done and saved, but {error}") from error
    trainer.writer.finish(summary)
    return summary


def _import_late_packages(tensorboard: bool) -> None:
    """Imports what the first row and checkpoint need."""
    # The code that needs a package imports it again, and reports why that fails.
    if tensorboard:
        with contextlib.suppress(Exception), deferred_imports(*_CLIENTS_OF_BUCKETS):
            importlib.import_module("tensorboardX")
    with contextlib.suppress(Exception):
        importlib.import_module("orbax.checkpoint")


def benchmark_metrics(
    summary: Mapping[str, Any], seconds: float, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The content of the file.

    Args:
      summary: of the run, or the short one of an interrupted run.
      seconds: of training over all processes of the run, as `stop.seconds` counts them.
      rows: of metrics.jsonl.

    Returns:
      `duration` in seconds; `timesteps`, in environment steps; `fps`, steps per second of training in this
      process; the peak memory of the process and of a device in bytes; the latest `mean_return` of training
      and `eval_return`; and `curve`, the mean returns of training with steps and seconds. None for numbers
      that were not measured.
    """
    key = "episode/return"
    curve = [
        {"timesteps": row["step"], "seconds": row.get("time/budget_seconds"), "mean_return": row[key]}
        for row in rows
        if row.get(key) is not None
    ]
    paces = [row["time/steps_per_second"] for row in rows if row.get("time/steps_per_second")]
    return {
        "stop_reason": summary["stop_reason"],
        "duration": round(seconds, 3),
        "timesteps": summary["steps"],
        "fps": summary.get("steps_per_second") or (round(paces[-1]) if paces else None),
        "peak_memory_bytes": resources.peak_memory(),
        "mean_return": curve[-1]["mean_return"] if curve else None,
        "eval_return": summary.get("eval_return"),
        "curve": curve,
    }
