"""One training run from a config and a folder to a summary: devices, folder, writers, trainer."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence

import jax
from ml_collections import ConfigDict

from jaxrl.config import (
    Config,
    ConfigError,
    check_config,
    environment_spec,
    largest_device_count,
    resolve,
    to_json,
    versions,
)
from jaxrl.config.resolution import stage_configs
from jaxrl.config.trust import needs_trust
from jaxrl.envs import registry
from jaxrl.envs.base import has_large_images
from jaxrl.envs.pictures import layout_notes
from jaxrl.metrics.tracing import host_profile
from jaxrl.parallel import cpu_devices, process_group
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.parallel.process_exit import watch_progress
from jaxrl.parallel.processes import Processes
from jaxrl.reporting.writers import MultiWriter, require_packages
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.runs.storage.bucket import require_client
from jaxrl.training import warm_start
from jaxrl.training.assembly import Assembly
from jaxrl.training.in_folder import RunOutcome, run_writers, train_in
from jaxrl.training.trainer import Trainer

# Steps of a minibatch that make a virtual CPU device of its own worth its share of the all-reduce: on two
# cores, two devices were slower than one at 64 steps each, and faster from 256 on (docs/results.md).
# XLA gives one thread to most passes of a layer normalisation, so that a second device helps sooner. A large
# image takes as long as hundreds of vectors.
MIN_MINIBATCH_PER_CORE = 256
MIN_NORMALIZED_PER_CORE = 64
MIN_IMAGES_PER_CORE = 32


def run(
    config: ConfigDict,
    workdir: str,
    interruption: Interruption,
    debug: bool = False,
    processes: Processes = Processes(),  # noqa: B008
    process_started: float | None = None,
    notes: Sequence[str] = (),
) -> RunOutcome:
    """Trains, or resumes training, in `workdir`; `Trainer.start` says what from.

    Args:
      config: as from a config file.
      workdir: the run's folder; with several processes the first one's counts.
      interruption: asks the training to save and stop.
      debug: name the operation too, if a value was not finite.
      processes: which others take part; all must be given the same configuration.
      process_started: the time of `time.perf_counter` from which `stop.wall_seconds` counts; None is now.
      notes: lines to show first.

    Raises:
      ConfigError: the configuration or the folder is wrong.
      RunError: training cannot continue.
    """
    with process_group.join(processes):
        resolved = resolve(config, choose_devices(config, processes.num_processes))
        require_packages(resolved.log.writers)
        require_client("storage.sync_to", resolved.storage.sync_to)
        use_compilation_cache()
        folder = RunFolder(_agree_on_folder(resolved, workdir), resolved.checkpoint.keep, interruption)
        assembly = Assembly.build(stage_configs(resolved)[0], interruption, process_started)
        # Before there is a folder to clear away.
        process_group.by_first(lambda: _require_source(resolved, folder, assembly))
        folder.create()
        with folder.lock():
            folder.require_same(resolved)
            with (
                _writers(folder, assembly) as writer,
                watch_progress(assembly.clock.idle, processes.watchdog),
                host_profile(
                    folder.log_folder, resolved.profile.host and process_group.is_first()
                ) as host_table,
            ):
                for line in notes:
                    writer.message(line)
                writer.message(f"run folder: {folder.path}")
                for line in layout_notes(assembly.runtime.spec.observation_space):
                    writer.message(line)
                trainer = Trainer(resolved, folder, writer, assembly, debug)
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
    """The folder for all processes.

    Raises:
      ConfigError: they have not been given the same configuration.
    """
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
        warm_start.find_checkpoint("resume_from", config.resume_from)
    field, teacher = assembly.runtime.learning.algorithm.teacher
    if teacher and not config.resume_from:
        warm_start.find_checkpoint(field, teacher)
    if config.init_from:
        learner = assembly.runtime.learning.abstract_state().learner
        warm_start.require(config.init_from, config.init_names, learner)


@contextlib.contextmanager
def _writers(folder: RunFolder, assembly: Assembly) -> Iterator[MultiWriter]:
    """Only the first of several processes shows and writes metrics."""
    if not process_group.is_first():
        yield MultiWriter(())
        return
    config = assembly.config
    runtime = assembly.runtime
    highlights = runtime.learning.per_device.highlights
    with run_writers(folder, config, highlights, runtime.agent.describe()) as writer:
        yield writer


def limit_devices(config: ConfigDict, most: int, processes: Processes) -> int:
    """The number of devices of a config whose file names one: that number, or as many as there are.

    Args:
      config: as from a config file.
      most: devices that its file names.
      processes: of the run; with several of them it is the number itself.

    Raises:
      ConfigError: the configuration is wrong.
    """
    return most if processes.num_processes else choose_devices(config, most=most)


def choose_devices(config: ConfigDict, processes: int | None = None, most: int | None = None) -> int:
    """The number of devices to train on: as many as the config allows; on CPU only as many as pay off.

    Args:
      config: as from a config file.
      most: the largest number; None sets no limit.
      processes: how many share the training, if that is known before they have met. Each gets one
        virtual CPU device then, unless the config or JAX_NUM_CPU_DEVICES says otherwise.

    Raises:
      ConfigError: the configuration is wrong, or its environments cannot be shared by all processes.
    """
    checked = check_config(config)
    if config.num_devices:
        cpu_devices.offer_cpu_devices(-(-config.num_devices // (processes or 1)))
        return config.num_devices
    paid_for = checked.steps_per_update // _least_minibatch(config)
    worthwhile = max(1, min(cpu_devices.available_cores(), paid_for, most or paid_for))
    cpu_devices.offer_cpu_devices(1 if processes else largest_device_count(config, worthwhile))
    available = min(jax.device_count(), most or jax.device_count())
    return largest_device_count(config, available, process_group.num_processes())


def _least_minibatch(config: ConfigDict) -> int:
    """Steps of a minibatch that make a virtual CPU device worth having."""
    if _sees_images(config):
        return MIN_IMAGES_PER_CORE
    return MIN_NORMALIZED_PER_CORE if config.network.layer_norm else MIN_MINIBATCH_PER_CORE


def _sees_images(config: ConfigDict) -> bool:
    """True if observations are large images; only environments on the host are asked.

    To make an environment in JAX may start its backend, which must not happen before the devices are chosen.
    """
    name = config.env.name
    wrappers = tuple(config.env.wrappers)
    return registry.is_host(name) and has_large_images(
        environment_spec("env.name", name, name, wrappers).observation_space
    )
