"""The phases of training to which the instructions of a compiled program belong."""

from __future__ import annotations

import re
from collections import Counter

from jaxrl.diagnostics.compiled_programs.text import ProgramText
from jaxrl.metrics.tracing import PHASES

OTHER = "other"
# A nameless operation belongs to the phase of this share of the operations around it.
_MAJORITY = 0.9
# No program saves a checkpoint: JAX so names what a backward pass computes again.
_ON_DEVICES = [name for name in PHASES if name != "checkpoint"]
_PHASE = re.compile(rf"(?:^|[/(])({'|'.join(_ON_DEVICES)})(?=[/)]|$)")


class PhaseMap:
    """Finds the phase of each instruction of a program, by its name."""

    def __init__(self, program: ProgramText) -> None:
        computations = program.computations
        self._members = {name: [line.name for line in lines] for name, lines in computations.items()}
        self._home = {member: name for name, members in self._members.items() for member in members}
        lines = [line for members in computations.values() for line in members]
        self._called = {line.name: line.called for line in lines}
        self._sources = {line.name: source for line in lines if (source := line.source)}
        self._counts: dict[str, Counter[str]] = {}

    def place(self, name: str) -> tuple[str, str]:
        """(phase, origin in the traced program) of an instruction; ("other", "") if unknown."""
        if name not in self._home:
            return OTHER, ""
        source = self._sources.get(name, "")
        phase = (
            _phase_of(source)
            or self._majority(self._called[name])
            or self._majority([self._home[name]])
            or OTHER
        )
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
                if phase := _phase_of(self._sources.get(member, "")):
                    found[phase] += 1
                for name in self._called[member]:
                    found += self._count(name)
            self._counts[computation] = found
        return self._counts[computation]


def _phase_of(source: str) -> str | None:
    found = _PHASE.search(source)
    return found[1] if found else None
