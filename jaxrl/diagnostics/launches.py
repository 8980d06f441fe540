"""Kernels that a compiled GPU program launches: by loop, by phase, and the bytes that they move.

A GPU runs a program kernel by kernel: every fusion, copy and call of a library is one, and small ones take no
less than their launch.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from jaxrl.diagnostics.compiled_programs import OTHER, Instruction, PhaseMap, ProgramText, bytes_of

# Names for memory and control: nothing runs on the device for these.
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all add-dependency opt-barrier partition-id "
    "replica-id async-update async-done copy-done all-reduce-done all-gather-done collective-permute-done "
    "send-done recv-done domain".split()
)
# From one small kernel of a stream to the next, as commonly seen with CUDA 12 on these GPUs.
LAUNCH_SECONDS = 2e-6
_NUMBER = re.compile(r"(\d+)\)")
# These read only as much of their first operand as they return.
_WINDOWS = frozenset(("dynamic-slice", "slice", "gather"))


@dataclass
class LoopLaunches:
    """Launches of one turn of a loop, without the loops inside it.

    The branch of a conditional with the most kernels counts.

    Attributes:
      phase: its phase of training.
      turns: per iteration of training; 1 for instructions outside of known loops.
      kernels: per turn.
      conditionals: per turn.
      bytes: read and written by the kernels of a turn, without caches.
    """

    phase: str
    turns: int
    kernels: int = 0
    conditionals: int = 0
    bytes: int = 0


@dataclass
class Launches:
    """Launches of one iteration of training on one device.

    Attributes:
      loops: in the order of the program; the first are the instructions outside of loops.
      phases: kernels by phase.
    """

    loops: list[LoopLaunches]
    phases: Counter[str] = field(default_factory=Counter)

    @property
    def kernels(self) -> int:
        return sum(loop.turns * loop.kernels for loop in self.loops)

    @property
    def conditionals(self) -> int:
        return sum(loop.turns * loop.conditionals for loop in self.loops)

    @property
    def bytes(self) -> int:
        return sum(loop.turns * loop.bytes for loop in self.loops)

    def innermost(self, phase: str) -> LoopLaunches | None:
        """The loop of a phase that turns most often, such as that over the steps of a rollout."""
        found = [loop for loop in self.loops if loop.phase == phase and loop.turns > 1]
        return max(found, key=lambda loop: loop.turns, default=None)


def read_launches(text: str) -> Launches:
    """Reads `compiled.as_text()` of a program for GPUs.

    A loop of unknown length, such as the one over iterations, turns once. The condition of a loop whose
    length the compiler knows is never computed.
    """
    return _Reader(ProgramText.parse(text)).read()


class _Reader:
    def __init__(self, program: ProgramText) -> None:
        self._program = program
        self._phases = PhaseMap(program)
        self._traffic = _Traffic(program)
        self._sizes: dict[str, int] = {}

    def read(self) -> Launches:
        outside = LoopLaunches(OTHER, 1)
        launches = Launches([outside])
        self._visit(self._program.entry, outside, launches)
        launches.loops = [loop for loop in launches.loops if loop.kernels or loop.conditionals]
        return launches

    def _visit(self, computation: str, loop: LoopLaunches, launches: Launches) -> None:
        for line in self._program.computations.get(computation, {}).values():
            if line.opcode == "while":
                self._visit_loop(line, loop, launches)
            elif line.opcode == "conditional":
                loop.conditionals += 1
                self._visit(max(line.called, key=self._size), loop, launches)
            elif line.opcode in ("call", "async-start"):
                for called in line.called:
                    self._visit(called, loop, launches)
            elif line.opcode not in _FREE:
                loop.kernels += 1
                loop.bytes += self._traffic.bytes(computation, line)
                phase = self._phases.place(line.name)[0]
                # A copy has no name; it belongs to the loop around it.
                launches.phases[loop.phase if phase == OTHER else phase] += loop.turns

    def _visit_loop(self, line: Instruction, outer: LoopLaunches, launches: Launches) -> None:
        turns = self._program.turns(line)
        loop = outer
        if turns is not None:
            loop = LoopLaunches(self._phases.place(line.name)[0], outer.turns * turns)
            launches.loops.append(loop)
        for called in line.called:
            if turns is None or called != line.condition:
                self._visit(called, loop, launches)

    def _size(self, computation: str) -> int:
        """Kernels of a computation with all that it calls, loops once."""
        if computation not in self._sizes:
            lines = self._program.computations.get(computation, {}).values()
            inside = ("while", "conditional", "call", "async-start")
            self._sizes[computation] = sum(
                sum(map(self._size, line.called)) if line.opcode in inside else line.opcode not in _FREE
                for line in lines
            )
        return self._sizes[computation]


@dataclass(frozen=True)
class IterationTime:
    """Seconds of each part, as if the others took none.

    Kernels are launched one after the other; memory is read and written at its full bandwidth, without
    caches; matrix products are computed at the peak of their units.
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


class _Traffic:
    def __init__(self, program: ProgramText) -> None:
        self._computations = program.computations
        self._fusions: dict[str, tuple[dict[int, int | None], int | None]] = {}

    def bytes(self, computation: str, line: Instruction) -> int:
        """Bytes of an instruction of a computation: each operand is read once, each result written once."""
        around = self._computations[computation]
        sizes = [bytes_of(around[name].shape) if name in around else 0 for name in line.operands]
        if line.opcode in _WINDOWS:
            return 2 * bytes_of(line.shape)
        if line.opcode == "dynamic-update-slice":
            return 2 * sizes[1]
        if line.opcode != "fusion" or not line.called:
            return sum(sizes) + bytes_of(line.shape)
        reads, written = self._of_fusion(line.called[0])
        read = sum(_whole_unless(reads.get(i), size) for i, size in enumerate(sizes))
        return read + _whole_unless(written, bytes_of(line.shape))

    def _of_fusion(self, name: str) -> tuple[dict[int, int | None], int | None]:
        """(bytes read of each parameter, bytes written); None for all of them."""
        if name not in self._fusions:
            inside = self._computations.get(name, {})
            users: dict[str, list[Instruction]] = {}
            for line in inside.values():
                for operand in line.operands:
                    users.setdefault(operand, []).append(line)
            reads = {
                int(found[1]): _bytes_read(line.name, users)
                for line in inside.values()
                if line.opcode == "parameter" and (found := _NUMBER.match(line.rest))
            }
            root = next(reversed(inside.values()), None)
            self._fusions[name] = reads, _bytes_written(root, inside) if root else None
        return self._fusions[name]


def _whole_unless(part: int | None, whole: int) -> int:
    return whole if part is None else min(part, whole)


def _bytes_read(name: str, users: dict[str, list[Instruction]]) -> int | None:
    """Bytes that are read of a value; None for all of it."""
    total = 0
    for line in users.get(name, ()):
        first = line.operands[0] == name
        if line.opcode in _WINDOWS and first:
            total += bytes_of(line.shape)
        elif line.opcode == "bitcast":
            part = _bytes_read(line.name, users)
            if part is None:
                return None
            total += part
        elif not (line.opcode == "dynamic-update-slice" and first):  # written in place
            return None
    return total


def _bytes_written(line: Instruction, inside: dict[str, Instruction]) -> int | None:
    """Bytes that the root of a fusion writes; None for all of its shape."""
    if line.opcode == "bitcast" and line.operands[0] in inside:
        return _bytes_written(inside[line.operands[0]], inside)
    if line.opcode == "dynamic-update-slice":
        return bytes_of(inside[line.operands[1]].shape)
    if line.opcode == "tuple":
        parts = [inside[name] for name in line.operands]
        return sum(_whole_unless(_bytes_written(part, inside), bytes_of(part.shape)) for part in parts)
    return None
