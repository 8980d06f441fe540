"""The text of a compiled program (`compiled.as_text()`, `*.hlo.txt`): instructions, phases, exchanges."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from jaxrl.metrics.tracing import PHASES

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(
    r"\b(?:body|condition|to_apply|calls|true_computation|false_computation|branch_computations"
    r"|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(r"[\w.\-]+")
_SOURCE = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*(?:e\d+m\d+\w*)?)\[([0-9,]*)\]")
_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "f16": 2, "token": 0}
OTHER = "other"
# A nameless operation belongs to the phase of this share of the operations around it.
_MAJORITY = 0.9
_KERNEL = 'custom_call_target="tpu_custom_call"'
_COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
# The form of a reduce-scatter in programs for TPUs: a fusion of an all-reduce and a slice.
_SCATTER = "calls=%all-reduce-scatter"
_DEVICES = re.compile(r"num_partitions=(\d+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# No program saves a checkpoint: JAX so names what a backward pass computes again.
_ON_DEVICES = [name for name in PHASES if name != "checkpoint"]
_PHASE = re.compile(rf"(?:^|[/(])({'|'.join(_ON_DEVICES)})(?=[/)]|$)")


@dataclass(frozen=True)
class Instruction:
    """One line: `%name = shape opcode(rest`."""

    name: str
    shape: str
    opcode: str
    rest: str

    @property
    def called(self) -> list[str]:
        """Computations that it calls."""
        return [name for names in _CALLED.findall(self.rest) for name in _NAME.findall(names)]

    @property
    def operands(self) -> list[str]:
        """Names of the instructions that are its operands."""
        return _OPERAND.findall(self.rest.partition(")")[0])

    @property
    def source(self) -> str:
        """Its origin in the traced program, or ""."""
        found = _SOURCE.search(self.rest)
        return found[1] if found else ""

    @property
    def condition(self) -> str:
        """The computation that decides whether a loop continues, or ""."""
        found = _CONDITION.search(self.rest)
        return found[1] if found else ""


@dataclass(frozen=True)
class ProgramText:
    """A program: its instructions by computation and name, and the computation that runs first."""

    entry: str
    computations: dict[str, dict[str, Instruction]]

    @classmethod
    def parse(cls, text: str) -> ProgramText:
        """Reads the text; lines that are no instruction are skipped."""
        entry = ""
        name = ""
        computations: dict[str, dict[str, Instruction]] = {}
        for line in text.splitlines():
            if header := _COMPUTATION.match(line):
                name = header[2]
                computations[name] = {}
                entry = name if header[1] else entry
            elif name and (found := _INSTRUCTION.match(line)):
                computations[name][found[1]] = Instruction(*found.groups())
        return cls(entry, computations)

    def executions(self) -> Counter[str]:
        """The number of executions of each computation per run of the program, except inside fusions.

        A loop runs as often as the compiler noted beside it, or as the constant with which its
        counter is compared. A loop without either, such as the one over iterations, counts once.
        Branches count as if all were taken.
        """
        executions: Counter[str] = Counter()

        def visit(name: str, count: int) -> None:
            executions[name] += count
            for line in self.computations.get(name, {}).values():
                if line.opcode in ("while", "call", "conditional", "async-start"):
                    turns = self.turns(line) if line.opcode == "while" else None
                    for called in line.called:
                        visit(called, count * (turns or 1))

        visit(self.entry, 1)
        return executions

    def turns(self, loop: Instruction) -> int | None:
        """The number of turns of a loop; None if the program does not state it."""
        if found := _TRIPS.search(loop.rest):
            return int(found[1])
        lines = list(self.computations.get(loop.condition, {}).values())
        values = {line.name: line.rest.partition(")")[0] for line in lines if line.opcode == "constant"}
        # JAX's scans count from 0 up to a constant, and nothing else ends them.
        if lines and lines[-1].opcode == "compare" and "direction=LT" in lines[-1].rest:
            bounds = (values.get(operand, "") for operand in lines[-1].operands)
            return next((int(bound) for bound in bounds if bound.isdecimal()), None)
        return None


def bytes_of(shape: str) -> int:
    """Bytes of the arrays in a shape such as `(f32[8,64]{1,0}, pred[])`, without padding."""
    total = 0
    for kind, dimensions in _ARRAY.findall(shape):
        digits = re.search(r"\d+", kind)
        size = _BYTES.get(kind, max(1, int(digits[0]) // 8) if digits else 0)
        total += size * math.prod(int(n) for n in dimensions.split(",") if n)
    return total


class PhaseMap:
    """Finds the phase of each instruction of a program, by its name."""

    def __init__(self, program: ProgramText) -> None:
        self._members = program.computations
        self._home = {member: name for name, members in self._members.items() for member in members}
        lines = {name: line for members in self._members.values() for name, line in members.items()}
        self._called = {name: line.called for name, line in lines.items()}
        self._sources = {name: source for name, line in lines.items() if (source := line.source)}
        self._counts: dict[str, Counter[str]] = {}

    def place(self, name: str) -> tuple[str, str]:
        """(phase, origin in the traced program) of an instruction; ("other", "") if unknown."""
        if name not in self._home:
            return OTHER, ""
        source = self._sources.get(name, "")
        named = _PHASE.search(source)
        phase = named[1] if named else self._majority(self._called[name])
        phase = phase or self._majority([self._home[name]]) or OTHER
        if not source:
            # A fusion has the phase of its last named instruction.
            inside = [m for computation in self._called[name] for m in self._members.get(computation, ())]
            source = next((self._sources[m] for m in reversed(inside) if m in self._sources), "")
        return phase, "/".join(source.split("/")[-3:])

    def _majority(self, computations: list[str]) -> str | None:
        total = sum((self._count(name) for name in computations), Counter[str]())
        ((phase, count),) = total.most_common(1) or [("", 0)]
        return phase if count and count >= _MAJORITY * total.total() else None

    def _count(self, computation: str) -> Counter[str]:
        """The number of instructions of each phase in a computation and in the ones that it calls."""
        if computation not in self._counts:
            found: Counter[str] = Counter()
            for member in self._members.get(computation, ()):
                if named := _PHASE.search(self._sources.get(member, "")):
                    found[named[1]] += 1
                for name in self._called[member]:
                    found += self._count(name)
            self._counts[computation] = found
        return self._counts[computation]


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
        """Executions by kind of collective."""
        counts: Counter[str] = Counter()
        for collective in self.collectives:
            counts[collective.kind] += collective.times
        return dict(counts)


def read_work(text: str) -> Work:
    """Reads `compiled.as_text()`; an instruction inside a loop counts as often as the loop turns."""
    program = ProgramText.parse(text)
    partitions = _DEVICES.search(text)
    devices = int(partitions[1]) if partitions else 1
    executions = program.executions()
    collectives = []
    cycles = 0
    kernels = 0
    for name, instructions in program.computations.items():
        times = executions[name]
        for line in instructions.values() if times else ():
            kind = line.opcode.removesuffix("-start")
            if kind == "fusion" and _SCATTER in line.rest:
                kind = "reduce-scatter"
            if kind in _COLLECTIVES:
                collectives.append(Collective(kind, times, _exchanged(line, kind, devices)))
            elif _KERNEL in line.rest:
                kernels += times
            elif estimated := _CYCLES.search(line.rest):
                cycles += times * int(estimated[1])
    return Work(tuple(collectives), cycles, kernels)


def _exchanged(line: Instruction, kind: str, devices: int) -> int:
    size = bytes_of(line.shape)
    # The beginnings of all but all-reduces return what they were given beside the result.
    is_start = line.opcode.endswith("-start")
    if kind == "collective-permute":
        return size // 2 if is_start else size
    if kind in ("reduce-scatter", "all-gather"):
        parts = devices + 1 if is_start else 1 if kind == "reduce-scatter" else devices
        return size * devices // parts // 2
    return size
