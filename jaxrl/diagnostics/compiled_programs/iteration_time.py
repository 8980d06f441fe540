"""A model of the time that one iteration takes on a GPU, from its compiled program; nothing is measured."""

from __future__ import annotations

from dataclasses import dataclass

# From one small kernel of a stream to the next, as commonly seen with CUDA 12 on these GPUs.
LAUNCH_SECONDS = 2e-6


@dataclass(frozen=True)
class IterationTime:
    """Seconds of each part, as if the others took none.

    Attributes:
      launches: of kernels, one after the other.
      memory: of reading and writing, at the memory's full bandwidth and without caches.
      arithmetic: of matrix products, at the peak of the units that compute them.
    """

    launches: float
    memory: float
    arithmetic: float

    @classmethod
    def of(cls, kernels: int, moved: int, flops: float, bandwidth: float, peak: float) -> IterationTime:
        """The times for counts per iteration and device, bytes per second and FLOP per second."""
        return cls(kernels * LAUNCH_SECONDS, moved / bandwidth, flops / peak)

    @property
    def least(self) -> float:
        """Seconds if the parts overlap completely."""
        return max(self.launches, self.memory, self.arithmetic)

    @property
    def most(self) -> float:
        """Seconds if none of the parts overlap."""
        return self.launches + self.memory + self.arithmetic
