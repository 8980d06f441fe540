"""What a device trace holds: time by operation and by phase."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jaxrl.config.errors import ConfigError
from jaxrl.metrics.tracing import PHASES

OTHER = "other"
# A nameless operation is of the phase of those around it where these agree.
_AGREEMENT = 0.9

_PHASE = re.compile(rf"(?:^|[/(])({'|'.join(PHASES)})(?=[/)]|$)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_CALLS = re.compile(
    r"(?:calls|to_apply|body|condition|branch_computations|called_computations)=(\{[^}]*\}|\S+)"
)
_NAME = re.compile(r"%?([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Operation:
    """One operation of a compiled program; `seconds` without those inside it, over `count` executions.

    `source` is where in the traced program it comes from, as far as that is known.
    """

    name: str
    phase: str
    source: str
    seconds: float
    count: int


@dataclass(frozen=True)
class Summary:
    """A trace in numbers.

    Attributes:
      file: the trace.
      seconds: from the first operation to the end of the last.
      busy: share of these in which an operation ran.
      threads: on how many threads or streams operations ran.
      named: whether the programs lay beside the trace, so that phases are known.
      phases: seconds of operations by phase, over all threads.
      host: seconds of the host by phase, where it has some of its own.
      operations: those with most seconds first.
    """

    file: str
    seconds: float
    busy: float
    threads: int
    named: bool
    phases: dict[str, float]
    host: dict[str, float]
    operations: list[Operation]


def read(file: Path) -> Summary:
    """Reads a trace (`*.xplane.pb`) and the programs beside it (`*.hlo.txt`).

    Raises:
      ConfigError: it cannot be read, or no operation ran in it.
    """
    from jax.profiler import ProfileData

    try:
        planes = list(ProfileData.from_file(str(file)).planes)
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    programs = dict(_program(path) for path in file.parent.glob("*.hlo.txt"))
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    counts: Counter[tuple[str, str]] = Counter()
    host: defaultdict[str, float] = defaultdict(float)
    spans: list[tuple[float, float]] = []
    threads = 0
    for line in itertools.chain.from_iterable(plane.lines for plane in planes):
        events = []
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                key = str(stats.get("hlo_module", "")), str(stats["hlo_op"])
                events.append(_Event(event.start_ns, event.start_ns + event.duration_ns, key))
            elif event.name in PHASES:
                host[event.name] += event.duration_ns / 1e9
        threads += bool(events)
        for event, own in _own_times(events):
            seconds[event.key] += own / 1e9
            counts[event.key] += 1
            spans.append((event.start, event.end))
    if not spans:
        raise ConfigError(f"{file} holds no operation of a device")
    operations = []
    for (module, name), total in sorted(seconds.items(), key=lambda item: -item[1]):
        phase, source = programs.get(module, _Program()).place(name)
        operations.append(Operation(name, phase, source, total, counts[module, name]))
    start, end = min(spans)[0], max(end for _, end in spans)
    phases = {name: sum(x.seconds for x in operations if x.phase == name) for name in (*PHASES, OTHER)}
    return Summary(
        file=str(file),
        seconds=(end - start) / 1e9,
        busy=_covered(spans) / max(end - start, 1),
        threads=threads,
        named=bool(programs),
        phases={name: x for name, x in phases.items() if x or name in host},
        host=dict(host),
        operations=operations,
    )


@dataclass
class _Event:
    start: float
    end: float
    key: tuple[str, str]


def _own_times(events: list[_Event]) -> Iterator[tuple[_Event, float]]:
    """Each event of one thread with its nanoseconds less those of the events inside it."""
    inside = [0.0] * len(events)
    events = sorted(events, key=lambda event: (event.start, -event.end))
    open_events: list[int] = []
    for index, event in enumerate(events):
        while open_events and events[open_events[-1]].end <= event.start:
            open_events.pop()
        if open_events:
            inside[open_events[-1]] += event.end - event.start
        open_events.append(index)
    for event, nested in zip(events, inside, strict=True):
        yield event, max(event.end - event.start - nested, 0.0)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Nanoseconds in at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


@dataclass
class _Program:
    """The text of a compiled program: instructions by computation, and what each says of itself."""

    members: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    home: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    called: dict[str, list[str]] = field(default_factory=dict)
    phases: dict[str, Counter[str]] = field(default_factory=dict)

    def place(self, name: str) -> tuple[str, str]:
        """(phase, source) of an instruction."""
        if name not in self.home:
            return OTHER, ""
        source = self.sources.get(name, "")
        phase = (
            _phase_of(source)
            or self._majority(self.called[name])
            or self._majority([self.home[name]])
            or OTHER
        )
        if not source:
            # A fusion is what its last named instruction is.
            inside = [m for computation in self.called[name] for m in self.members[computation]]
            source = next((self.sources[m] for m in reversed(inside) if m in self.sources), "")
        return phase, "/".join(source.split("/")[-3:])

    def _majority(self, computations: list[str]) -> str | None:
        total = sum((self._count(name) for name in computations), Counter[str]())
        ((phase, count),) = total.most_common(1) or [("", 0)]
        return phase if count and count >= _AGREEMENT * total.total() else None

    def _count(self, computation: str) -> Counter[str]:
        """How many instructions of a computation, and of those that it calls, are of each phase."""
        if computation not in self.phases:
            found: Counter[str] = Counter()
            for member in self.members[computation]:
                if phase := _phase_of(self.sources.get(member, "")):
                    found[phase] += 1
                for name in self.called[member]:
                    found += self._count(name)
            self.phases[computation] = found
        return self.phases[computation]


def _phase_of(op_name: str) -> str | None:
    found = _PHASE.search(op_name)
    return found[1] if found else None


def _program(path: Path) -> tuple[str, _Program]:
    """(name of the module, what its text says)."""
    program = _Program()
    computation = ""
    for line in path.read_text().splitlines():
        if found := _INSTRUCTION.match(line):
            name = found[1]
            program.members[computation].append(name)
            program.home[name] = computation
            program.called[name] = [n for names in _CALLS.findall(line) for n in _NAME.findall(names)]
            if source := _OP_NAME.search(line):
                program.sources[name] = source[1]
        elif found := _COMPUTATION.match(line):
            computation = found[1]
    return path.name.removesuffix(".hlo.txt"), program
