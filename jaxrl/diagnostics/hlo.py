"""What a compiled program does each iteration, read from its text: collectives and estimated cycles.

The text lists an instruction inside a loop once; here it counts as often as the loop turns. How often is
what the compiler noted beside the loop, or the constant that its counter is compared with. A loop without
either, such as the one over iterations, counts once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "f16": 2, "token": 0}
_KERNEL = 'custom_call_target="tpu_custom_call"'
_COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*(?:e\d+m\d+\w*)?)\[([0-9,]*)\]")
_CALLS = re.compile(r"\b(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True)
class Instruction:
    """One line: `%name = shape opcode(rest`."""

    name: str
    shape: str
    opcode: str
    rest: str


@dataclass(frozen=True)
class Collective:
    """An exchange between devices: how often each iteration, and the bytes that a device gives each time."""

    kind: str
    times: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """What one iteration of a compiled program does on one device.

    Attributes:
      collectives: exchanges with other devices.
      cycles: the compiler's own estimate, without collectives and kernels; 0 where it makes none (CPU, GPU).
      kernels: calls of kernels of our own.
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


def read(text: str) -> Work:
    """Reads `compiled.as_text()`."""
    entry, computations = _computations(text)
    times = _times(entry, computations)
    collectives, cycles, kernels = [], 0, 0
    for name, instructions in computations.items():
        if not times[name]:
            continue
        for line in instructions:
            kind = line.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                collectives.append(Collective(kind, times[name], _bytes(line)))
            elif _KERNEL in line.rest:
                kernels += times[name]
            elif found := _CYCLES.search(line.rest):
                cycles += times[name] * int(found[1])
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
    """Of `all-reduce-start` and others that return what they were given beside the result: half."""
    doubled = line.opcode in ("all-gather-start", "collective-permute-start")
    return bytes_of(line.shape) // (2 if doubled else 1)


def _computations(text: str) -> tuple[str, dict[str, list[Instruction]]]:
    entry, name = "", ""
    computations: dict[str, list[Instruction]] = {}
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif name and (found := _INSTRUCTION.match(line)):
            computations[name].append(Instruction(*found.groups()))
    return entry, computations


def _times(entry: str, computations: dict[str, list[Instruction]]) -> Counter[str]:
    """How often each computation runs each iteration. Of branches all count: which is taken is not known."""
    times: Counter[str] = Counter()

    def visit(name: str, count: int) -> None:
        times[name] += count
        for line in computations.get(name, ()):
            if line.opcode == "while":
                called = _CALLS.findall(line.rest)
                trips = _trips(line, computations)
                for body in called:
                    visit(body, count * trips)
            elif line.opcode in ("call", "conditional", "async-start"):
                listed = _BRANCHES.search(line.rest)
                branches = re.findall(r"[\w.\-]+", listed[1]) if listed else []
                for branch in [*_CALLS.findall(line.rest), *branches]:
                    visit(branch, count)

    visit(entry, 1)
    return times


def _trips(loop: Instruction, computations: dict[str, list[Instruction]]) -> int:
    if found := _TRIPS.search(loop.rest):
        return int(found[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop.rest)
    lines = computations.get(condition[1], []) if condition else []
    constants = {
        line.name: int(line.rest.split(")")[0])
        for line in lines
        if line.opcode == "constant" and line.rest.split(")")[0].isdecimal()
    }
    # JAX's scans count from 0 up to a constant, and nothing else ends them.
    if lines and lines[-1].opcode == "compare" and "direction=LT" in lines[-1].rest:
        for operand in re.findall(r"%([\w.\-]+)", lines[-1].rest.split(")")[0]):
            if operand in constants:
                return constants[operand]
    return 1
