"""Bytes that the kernels of a compiled program read and write, as if no cache held any of them."""

from __future__ import annotations

import re

from jaxrl.diagnostics.compiled_programs.text import Instruction, ProgramText, bytes_of

_NUMBER = re.compile(r"(\d+)\)")
# These read only as much of their first operand as they return.
_WINDOWS = frozenset(("dynamic-slice", "slice", "gather"))


class Traffic:
    """The bytes that each instruction of a program moves."""

    def __init__(self, program: ProgramText) -> None:
        self._computations = {
            name: {line.name: line for line in lines} for name, lines in program.computations.items()
        }
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
            root = list(inside.values())[-1] if inside else None
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
