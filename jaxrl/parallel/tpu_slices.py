"""Cloud TPU slices by name, such as `v5e:4x8`: their chips, and device descriptions to compile for."""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError

_GIB = 2**30
_PLANES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")


@dataclass(frozen=True)
class Chip:
    """The chip of one TPU generation.

    Attributes:
      cores: JAX devices per chip. The two cores of v4 and v5p act as one device.
      memory_bytes: bytes of a device's memory that a program may use; the rest is reserved.
      flops: peak bfloat16 matrix operations per second of one device.
      clock: cycles per second; 0 if unknown.
      planes: the published slice shapes, if the chips form a plane; empty if they form a block.
      options: options of the compiler besides the shape.
    """

    cores: int
    memory_bytes: int
    flops: float
    clock: float
    planes: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


# Memory is the limit that libtpu reports when a program does not fit. Peaks are from Cloud TPU's pages;
# clocks follow from them: matrix units x 128 x 128 x 2 operations per cycle.
CHIPS = {
    "v3": Chip(2, int(15.48 * _GIB), 61.5e12, 0.94e9, ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16")),
    "v4": Chip(1, int(30.75 * _GIB), 275e12, 1.05e9, (), {"chip_config_name": "megacore"}),
    "v5e": Chip(1, int(15.75 * _GIB), 197e12, 1.5e9, ("1x1", *_PLANES)),
    "v5p": Chip(1, int(95.74 * _GIB), 459e12, 1.75e9, (), {"chip_config_name": "megacore"}),
    "v6e": Chip(1, int(31.25 * _GIB), 918e12, 0.0, ("1x1", *_PLANES)),
}
_SMALL_BLOCKS = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))


@dataclass(frozen=True)
class Slice:
    """A slice of a pod: its `generation`, such as "v5e", and the number of chips along each axis."""

    generation: str
    shape: tuple[int, ...]

    enforces_memory: ClassVar[bool] = True

    @property
    def chip(self) -> Chip:
        return CHIPS[self.generation]

    @property
    def name(self) -> str:
        return f"{self.generation}:{'x'.join(map(str, self.shape))}"

    @property
    def device_count(self) -> int:
        return math.prod(self.shape) * self.chip.cores

    @property
    def memory_bytes(self) -> int:
        return self.chip.memory_bytes

    @property
    def compiler(self) -> str:
        return f"libtpu {importlib.metadata.version('libtpu')}"

    def devices(self) -> list[Any]:
        installation.require("`--topology`", "tpu", "libtpu")
        from jax.experimental import topologies

        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # Compiling takes no chip.
        hush_libtpu()
        alone: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if math.prod(self.shape) == 1 else {}
        options = self.chip.options | alone
        return topologies.get_topology_desc(self.name, "tpu", **options).devices


def parse(text: str) -> Slice:
    """Parses `v5e:4x8` or `v4:2x2x4`; ConfigError if there is no such slice."""
    matched = re.fullmatch(r"(v\d\w*):(\d+(?:x\d+)+)", text.strip().lower())
    if matched is None or matched[1] not in CHIPS:
        generations = ", ".join(CHIPS)
        raise ConfigError(
            f"`--topology` (={text!r}) must be GENERATION:SHAPE, such as v5e:4x8 or v4:2x2x4; "
            f"generations: {generations}"
        )
    generation = matched[1]
    shape = tuple(map(int, matched[2].split("x")))
    planes = CHIPS[generation].planes
    if planes and matched[2] not in planes:
        raise ConfigError(f"`--topology` (={text!r}) must have one of the shapes {', '.join(planes)}")
    if not planes and not _is_block(shape):
        blocks = ", ".join("x".join(map(str, block)) for block in _SMALL_BLOCKS)
        raise ConfigError(
            f"`--topology` (={text!r}) must have one of the shapes {blocks}, or AxBxC of multiples of 4 "
            "with A <= B <= C, such as 4x4x8"
        )
    return Slice(generation, shape)


def _is_block(shape: tuple[int, ...]) -> bool:
    large = len(shape) == 3 and all(n and n % 4 == 0 for n in shape) and list(shape) == sorted(shape)
    return shape in _SMALL_BLOCKS or (large and math.prod(shape) <= 8960)


_NO_TPU = {
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


def hush_libtpu() -> None:
    """Keeps libtpu from querying the metadata server, and from logging its failure, without a TPU."""
    if not (glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*")):
        for name, value in _NO_TPU.items():
            os.environ.setdefault(name, value)
