"""The CPU devices that a process offers to JAX."""

from __future__ import annotations

import contextlib
import os

import jax

from jaxrl.parallel import tpu_slices


def available_cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def offer_cpu_devices(count: int) -> None:
    """Asks JAX for `count` virtual CPU devices in this process.

    XLA_FLAGS and JAX_NUM_CPU_DEVICES take precedence, and a running backend keeps its devices.
    """
    tpu_slices.hush_libtpu()
    flag = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not flag and not os.environ.get("JAX_NUM_CPU_DEVICES"):
        # JAX refuses once a backend is running, as in a notebook; its devices then stay.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)
