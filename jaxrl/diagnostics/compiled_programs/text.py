"""The text of a compiled program (`compiled.as_text()`, `*.hlo.txt`): instructions, calls and loops."""

from __future__ import annotations

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
    def source(self) -> str:
        """Where in the traced program it comes from, or ""."""
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
        entry, name = "", ""
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
        """How often each computation runs each time the program does, those inside fusions left out.

        A loop counts as often as it turns: as the compiler noted beside it, or as the constant says that
        its counter is compared with. A loop without either, such as the one over iterations, counts once.
        Branches count as if all were taken.
        """
        executions: Counter[str] = Counter()

        def visit(name: str, count: int) -> None:
            executions[name] += count
            for line in self.computations.get(name, ()):
                if line.opcode in ("while", "call", "conditional", "async-start"):
                    turns = self._turns(line) if line.opcode == "while" else 1
                    for called in line.called:
                        visit(called, count * turns)

        visit(self.entry, 1)
        return executions

    def _turns(self, loop: Instruction) -> int:
        if found := _TRIPS.search(loop.rest):
            return int(found[1])
        condition = re.search(r"condition=%?([\w.\-]+)", loop.rest)
        lines = self.computations.get(condition[1], []) if condition else []
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
