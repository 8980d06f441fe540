"""The work of a compiled program per iteration: collectives, own kernels and estimated cycles.

An instruction inside a loop counts as often as the loop turns.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from jaxrl.diagnostics.compiled_programs.text import Instruction, ProgramText, bytes_of

_KERNEL = 'custom_call_target="tpu_custom_call"'
_COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
# The form of a reduce-scatter in programs for TPUs: a fusion of an all-reduce and a slice.
_SCATTER = "calls=%all-reduce-scatter"
_DEVICES = re.compile(r"num_partitions=(\d+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True)
class Collective:
    """An exchange between devices: its number per iteration, and the bytes that are exchanged each time.

    For an all-reduce, the bytes of its vector; a reduce-scatter or an all-gather of the same vector,
    in which each device sends half as much, counts half.
    """

    kind: str
    times: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """The work of one iteration of a compiled program on one device.

    Attributes:
      collectives: exchanges with other devices.
      cycles: the compiler's estimate, without collectives and own kernels; 0 without one (CPU, GPU).
      own_kernels: calls of this package's own kernels for TPUs.
    """

    collectives: tuple[Collective, ...]
    cycles: int
    own_kernels: int

    @property
    def exchanges(self) -> int:
        return sum(c.times for c in self.collectives)

    @property
    def exchanged_bytes(self) -> int:
        return sum(c.times * c.bytes for c in self.collectives)

    def kinds(self) -> dict[str, int]:
        """The number of executions of each kind of collective."""
        counts: Counter[str] = Counter()
        for collective in self.collectives:
            counts[collective.kind] += collective.times
        return dict(counts)


def read_work(text: str) -> Work:
    """Reads `compiled.as_text()`."""
    program = ProgramText.parse(text)
    found = _DEVICES.search(text)
    devices = int(found[1]) if found else 1
    executions = program.executions()
    collectives = []
    cycles = 0
    kernels = 0
    for name, instructions in program.computations.items():
        times = executions[name]
        for line in instructions if times else ():
            kind = line.opcode.removesuffix("-start")
            if kind == "fusion" and _SCATTER in line.rest:
                kind = "reduce-scatter"
            if kind in _COLLECTIVES:
                collectives.append(Collective(kind, times, _bytes(line, kind, devices)))
            elif _KERNEL in line.rest:
                kernels += times
            elif estimated := _CYCLES.search(line.rest):
                cycles += times * int(estimated[1])
    return Work(tuple(collectives), cycles, kernels)


def _bytes(line: Instruction, kind: str, devices: int) -> int:
    size = bytes_of(line.shape)
    # The beginnings of all but all-reduces return what they were given beside the result.
    is_start = line.opcode.endswith("-start")
    if kind == "collective-permute":
        return size // 2 if is_start else size
    if kind in ("reduce-scatter", "all-gather"):
        parts = devices + 1 if is_start else 1 if kind == "reduce-scatter" else devices
        return size * devices // parts // 2
    return size
