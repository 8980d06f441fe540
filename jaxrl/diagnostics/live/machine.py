"""The load of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil

from jaxrl.config import text


class Machine:
    """Cores, memory and NVIDIA GPUs (with the `monitor` extra)."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # The first call starts the interval that the next one reports.
        self._nvml: Any = None
        with contextlib.suppress(Exception):  # ImportError, or NVML's errors without a driver.
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml

    def describe(self) -> str:
        """One line; the CPU load is since the previous call."""
        memory = psutil.virtual_memory()
        parts = [
            f"cpu {psutil.cpu_percent():.0f}% of {psutil.cpu_count()} cores",
            f"memory {text.size(memory.total - memory.available)} of {text.size(memory.total)}",
        ]
        with contextlib.suppress(Exception):  # A driver that stops answering.
            parts += self._gpus()
        return ", ".join(parts)

    def _gpus(self) -> Iterator[str]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount() if nvml else 0):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield f"gpu {index} {busy}% {text.size(memory.used)} of {text.size(memory.total)}"
