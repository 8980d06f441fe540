"""One training run from a config and a folder to a summary: devices, folder, writers, trainer."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import jax
from ml_collections import ConfigDict

from jaxrl import sharding
from jaxrl.config import check_config, largest_device_count, resolve, to_json, versions
from jaxrl.interrupt import Interruption
from jaxrl.learner import Trainer
from jaxrl.metrics import open_writers
from jaxrl.run_folder import RunFolder

# Steps of a minibatch that make a virtual CPU device of its own worth its share of the all-reduce: on two
# cores, two devices were slower than one at 64 steps each, and faster from 256 on (docs/results.md).
MIN_MINIBATCH_PER_CORE = 256

log = logging.getLogger(__name__)


def run(config: ConfigDict, workdir: str, interruption: Interruption, debug: bool = False) -> int:
    """Trains, or resumes training, in `workdir`; `Trainer.start` says what from.

    Args:
      config: as from a config file.
      workdir: the run's folder.
      interruption: asks the training to save and stop.
      debug: name the operation too, where a value was not finite.

    Returns:
      The exit code: 0, or 128 + the number of the signal that ended training.

    Raises:
      ConfigError: the configuration or the folder is wrong.
      RunError: training cannot go on.
    """
    resolved = resolve(config, choose_devices(config))
    use_compilation_cache()
    folder = RunFolder(workdir, resolved.checkpoint.keep)
    trainer = Trainer(resolved, folder)
    trainer.interruption, trainer.debug = interruption, debug
    folder.create()
    with folder.lock():
        folder.require_same(resolved)
        with open_writers(folder.path, resolved) as trainer.writer:
            return _train(trainer, folder)


def _train(trainer: Trainer, folder: RunFolder) -> int:
    trainer.start()
    folder.write_config(trainer.config)
    log.info("configuration: %s", json.dumps(to_json(trainer.config)))
    log.info("on %s with %s", trainer.topology.description, json.dumps(versions()))
    summary = trainer.fit()
    if not trainer.interrupted and (trainer.progressed or not folder.has_summary):
        folder.write_summary(summary)
    trainer.writer.finish(summary)
    return trainer.interruption.exit_code if trainer.interrupted else 0


def use_compilation_cache() -> None:
    """Keeps compiled programs in ~/.cache/jaxrl, so that the second start of a config compiles little.

    `JAX_COMPILATION_CACHE_DIR` names another folder; `JAX_ENABLE_COMPILATION_CACHE=false` turns it off.
    """
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def choose_devices(config: ConfigDict) -> int:
    """How many devices to train on: as many as the config allows; on CPU only as many as pay off."""
    check_config(config)
    if config.num_devices:
        sharding.offer_cpu_devices(config.num_devices)
        return config.num_devices
    minibatch = config.env.num_envs * config.ppo.rollout_length // config.ppo.num_minibatches
    worthwhile = max(1, min(sharding.available_cores(), minibatch // MIN_MINIBATCH_PER_CORE))
    sharding.offer_cpu_devices(largest_device_count(config, worthwhile))
    return largest_device_count(config, jax.device_count())
