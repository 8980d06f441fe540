"""The use of the machine by this process: cores, memory, accelerators."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


class Meter:
    """Measures the share of the machine used since the previous reading, in microseconds.

    The utilization of the GPUs that JAX uses needs the `monitor` extra.
    """

    def __init__(
        self,
        cores: int,
        now: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        """Starts measuring, by `now`, a monotonic clock in seconds."""
        self._cores = cores
        self._now = now
        self._worked = worked
        self._last = now(), worked()
        self._nvml: Any = None
        self._gpus: list[Any] = []
        with contextlib.suppress(Exception):  # ImportError, or NVML's errors without a driver.
            if jax.default_backend() == "gpu":
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self._gpus = list(_visible(pynvml))

    def read(self) -> dict[str, float]:
        """`host/*` and, if the backend or its driver reports them, `device/*`; see docs/metrics.md."""
        seconds = self._now()
        worked = self._worked()
        passed = seconds - self._last[0]
        cpu = worked - self._last[1]
        self._last = seconds, worked
        row: dict[str, float] = {"host/peak_memory_bytes": peak_host_bytes()}
        if passed > 0:
            row["host/cpu_utilization"] = cpu / passed / self._cores
        if (peak := peak_device_bytes()) is not None:
            row["device/peak_memory_bytes"] = peak
        with contextlib.suppress(Exception):  # A driver that stops answering is no reason to stop training.
            if self._gpus:
                busy = sum(self._nvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in self._gpus)
                row["device/utilization"] = busy / 100 / len(self._gpus)
        return row


def peak_host_bytes() -> int:
    """Peak memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts kilobytes


def peak_device_bytes() -> int | None:
    """Peak memory in use on any one device, in bytes; None if it is not reported, as on CPU."""
    found = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((each["peak_bytes_in_use"] for each in found if "peak_bytes_in_use" in each), default=None)


def peak_memory() -> dict[str, int | None]:
    """Bytes on `host` and `device`, as in summary.json."""
    return {"host": peak_host_bytes(), "device": peak_device_bytes()}


def hardware(cores: int) -> dict[str, Any]:
    """A description of the machine to store with results; `cores` are available."""
    import psutil

    first = jax.local_devices()[0]
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "memory_bytes": psutil.virtual_memory().total,
        "devices": f"{jax.device_count()} x {first.device_kind}",
        "backend": " ".join(first.client.platform_version.split()),
        "system": platform.platform(),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _visible(nvml: Any) -> Iterator[Any]:
    """Handles of the GPUs in CUDA_VISIBLE_DEVICES, which names them by index or by identifier."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen else map(str, range(nvml.nvmlDeviceGetCount()))
    for name in map(str.strip, names):
        by_index = name.isdigit()
        yield nvml.nvmlDeviceGetHandleByIndex(int(name)) if by_index else nvml.nvmlDeviceGetHandleByUUID(name)
