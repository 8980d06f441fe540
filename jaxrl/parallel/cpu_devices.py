"""The CPU devices that a process offers to JAX."""

from __future__ import annotations

import contextlib
import os

import jax

from jaxrl.parallel import tpu_slices


def available_cores() -> int:
    """The CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def offer_cpu_devices(count: int) -> None:
    """Asks for `count` virtual CPU devices in this process.

    XLA_FLAGS, JAX_NUM_CPU_DEVICES, or a backend that has started, overrules it.
    """
    tpu_slices.hush_libtpu()
    flag = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not flag and not os.environ.get("JAX_NUM_CPU_DEVICES"):
        # JAX refuses once a backend runs, as in a notebook; the devices are then those it has.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)
