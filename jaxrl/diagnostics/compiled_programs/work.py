"""What a compiled program does each iteration: collectives, kernels and estimated cycles.

An instruction inside a loop counts as often as the loop turns.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from jaxrl.diagnostics.compiled_programs.text import Instruction, ProgramText

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "f16": 2, "token": 0}
_KERNEL = 'custom_call_target="tpu_custom_call"'
_COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*(?:e\d+m\d+\w*)?)\[([0-9,]*)\]")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True)
class Collective:
    """An exchange between devices: how often each iteration, and the bytes that a device sends each time."""

    kind: str
    times: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """What one iteration of a compiled program does on one device.

    Attributes:
      collectives: exchanges with other devices.
      cycles: the compiler's estimate, without collectives and kernels; 0 where it makes none (CPU, GPU).
      kernels: calls of this package's own kernels.
    """

    collectives: tuple[Collective, ...]
    cycles: int
    kernels: int

    @property
    def exchanges(self) -> int:
        return sum(c.times for c in self.collectives)

    @property
    def exchanged_bytes(self) -> int:
        return sum(c.times * c.bytes for c in self.collectives)

    def kinds(self) -> dict[str, int]:
        """How often each kind of collective runs."""
        counts: Counter[str] = Counter()
        for collective in self.collectives:
            counts[collective.kind] += collective.times
        return dict(counts)


def read_work(text: str) -> Work:
    """Reads `compiled.as_text()`."""
    program = ProgramText.parse(text)
    executions = program.executions()
    collectives, cycles, kernels = [], 0, 0
    for name, instructions in program.computations.items():
        times = executions[name]
        for line in instructions if times else ():
            kind = line.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                collectives.append(Collective(kind, times, _bytes(line)))
            elif _KERNEL in line.rest:
                kernels += times
            elif found := _CYCLES.search(line.rest):
                cycles += times * int(found[1])
    return Work(tuple(collectives), cycles, kernels)


def bytes_of(shape: str) -> int:
    """Bytes of the arrays in a shape such as `(f32[8,64]{1,0}, pred[])`, without padding."""
    total = 0
    for kind, dimensions in _ARRAY.findall(shape):
        digits = re.search(r"\d+", kind)
        size = _BYTES.get(kind, max(1, int(digits[0]) // 8) if digits else 0)
        total += size * math.prod(int(n) for n in dimensions.split(",") if n)
    return total


def _bytes(line: Instruction) -> int:
    # These two return what they were given beside the result.
    doubled = line.opcode in ("all-gather-start", "collective-permute-start")
    return bytes_of(line.shape) // (2 if doubled else 1)
