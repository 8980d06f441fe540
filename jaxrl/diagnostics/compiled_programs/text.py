"""The text of a compiled program (`compiled.as_text()`, `*.hlo.txt`): instructions, calls and loops."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

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


@dataclass(frozen=True)
class ProgramText:
    """A program: its instructions by computation, and the name of the computation that runs first."""

    entry: str
    computations: dict[str, list[Instruction]]

    @classmethod
    def parse(cls, text: str) -> ProgramText:
        """Reads the text; lines that are no instruction are skipped."""
        entry = ""
        name = ""
        computations: dict[str, list[Instruction]] = {}
        for line in text.splitlines():
            if header := _COMPUTATION.match(line):
                name = header[2]
                computations[name] = []
                entry = name if header[1] else entry
            elif name and (found := _INSTRUCTION.match(line)):
                computations[name].append(Instruction(*found.groups()))
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
            for line in self.computations.get(name, ()):
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
        condition = _CONDITION.search(loop.rest)
        lines = self.computations.get(condition[1], []) if condition else []
        constants = {
            line.name: int(line.rest.split(")")[0])
            for line in lines
            if line.opcode == "constant" and line.rest.split(")")[0].isdecimal()
        }
        # JAX's scans count from 0 up to a constant, and nothing else ends them.
        if lines and lines[-1].opcode == "compare" and "direction=LT" in lines[-1].rest:
            for operand in lines[-1].operands:
                if operand in constants:
                    return constants[operand]
        return None

    def is_condition(self, loop: Instruction, computation: str) -> bool:
        """True if a computation that a loop calls is the condition of its continuing."""
        found = _CONDITION.search(loop.rest)
        return found is not None and found[1] == computation


def bytes_of(shape: str) -> int:
    """Bytes of the arrays in a shape such as `(f32[8,64]{1,0}, pred[])`, without padding."""
    total = 0
    for kind, dimensions in _ARRAY.findall(shape):
        digits = re.search(r"\d+", kind)
        size = _BYTES.get(kind, max(1, int(digits[0]) // 8) if digits else 0)
        total += size * math.prod(int(n) for n in dimensions.split(",") if n)
    return total
