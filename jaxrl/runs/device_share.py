"""The part of this machine that each of several processes side by side gets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceShare:
    """GPUs and cores for one process of several; of one alone all that there are.

    Attributes:
      gpus: as CUDA_VISIBLE_DEVICES names them; (): all.
      memory: the share of each GPU's memory that JAX takes at the start; None: its own choice.
      cores: (): all.
    """

    gpus: tuple[str, ...] = ()
    memory: float | None = None
    cores: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """Variables for a process; this one's variables on how much memory is taken stay."""
        found = {}
        if self.gpus:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        if self.memory is not None and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{self.memory:.2f}"
        return found

    def bind(self, pid: int) -> None:
        """Gives a process its cores: threads of one would wait for another's."""
        if self.cores:
            with contextlib.suppress(OSError):  # It may have ended.
                os.sched_setaffinity(pid, self.cores)


def shares_of(jobs: int, gpus: Sequence[str], gpus_each: int = 1) -> tuple[DeviceShare, ...]:
    """A share of the machine for each of `jobs` processes.

    Args:
      jobs: how many processes run side by side.
      gpus: the present ones; processes share them round-robin if there are too few.
      gpus_each: how many each process uses.
    """
    if jobs == 1:
        return (DeviceShare(),)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    each = len(cores) // jobs
    # JAX takes three quarters of a GPU otherwise, so that a second process finds no memory.
    memory = 0.9 / -(-jobs * gpus_each // len(gpus)) if gpus else None
    return tuple(
        DeviceShare(
            gpus=tuple(dict.fromkeys(gpus[(slot * gpus_each + i) % len(gpus)] for i in range(gpus_each)))
            if gpus
            else (),
            memory=memory,
            cores=tuple(cores[slot * each : (slot + 1) * each]),
        )
        for slot in range(jobs)
    )
