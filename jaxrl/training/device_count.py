"""The number of devices to train on."""

from __future__ import annotations

import jax
from ml_collections import ConfigDict

from jaxrl.config import check_config, environment_spec, largest_device_count
from jaxrl.envs import registry
from jaxrl.envs.base import has_large_images
from jaxrl.parallel import cpu_devices, process_group
from jaxrl.parallel.processes import Processes

# Steps of a minibatch that make another virtual CPU device worth its share of the all-reduce: on two cores,
# two devices were slower than one at 64 steps each, and faster from 256 on (docs/results.md). XLA gives one
# thread to most passes of a layer normalisation, so that a second device helps sooner. A large image takes as
# long as hundreds of vectors.
MIN_MINIBATCH_PER_CORE = 256
MIN_NORMALIZED_PER_CORE = 64
MIN_IMAGES_PER_CORE = 32


def limit_devices(config: ConfigDict, most: int, processes: Processes) -> int:
    """The number of devices of a config whose file names `most`: that number, or as many as there are.

    With several processes it is the number itself. Raises ConfigError if the configuration is wrong.
    """
    return most if processes.num_processes else choose_devices(config, most=most)


def choose_devices(config: ConfigDict, processes: int | None = None, most: int | None = None) -> int:
    """The number of devices to train on: as many as the config allows; on CPU only as many as pay off.

    Args:
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
    """Steps of a minibatch that make a virtual CPU device worth having.

    Only environments on the host are checked for images: making one in JAX may start its backend, which must
    not happen before the devices are chosen.
    """
    name = config.env.name
    if registry.is_host(name):
        space = environment_spec("env.name", name, name, tuple(config.env.wrappers)).observation_space
        if has_large_images(space):
            return MIN_IMAGES_PER_CORE
    return MIN_NORMALIZED_PER_CORE if config.network.layer_norm else MIN_MINIBATCH_PER_CORE
