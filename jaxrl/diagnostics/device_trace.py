"""The content of a device trace: time by operation and by phase."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import LARGEST_LOG, open_regular, read_bytes
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.diagnostics.compiled_programs import OTHER, PhaseMap, ProgramText
from jaxrl.metrics.tracing import PHASES

_TEXT = ".hlo.txt"  # the end of the name of a program's text beside its trace
# Start and end in nanoseconds; the program and the operation.
_Event = tuple[float, float, tuple[str, str]]


@dataclass(frozen=True)
class Operation:
    """One operation of a compiled program.

    Attributes:
      phase: or "other".
      source: its origin in the traced program, or "".
      seconds: over all executions, without the operations inside it.
      count: executions.
    """

    name: str
    phase: str
    source: str
    seconds: float
    count: int


@dataclass(frozen=True)
class TraceSummary:
    """A trace in numbers.

    Attributes:
      seconds: from the first operation to the end of the last.
      busy: share of these seconds in which an operation ran.
      threads: the number of threads or streams with operations.
      named: True if the programs lay beside the trace, so that phases are known.
      phases: seconds of operations by phase, over all threads.
      host: seconds of the host by phase, if it has phases of its own.
      operations: the longest first.
    """

    file: str
    seconds: float
    busy: float
    threads: int
    named: bool
    phases: dict[str, float]
    host: dict[str, float]
    operations: list[Operation]


def newest(folder: str) -> Path:
    """The newest trace at or below a folder; ConfigError if there is none."""
    if not Path(folder).is_dir():
        raise ConfigError(f"`{folder}` is no folder")
    files = sorted(Path(folder).rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise ConfigError(f"`{folder}` holds no trace: train with --config.profile.steps=N, or send SIGUSR1")
    return files[-1]


def read(file: Path) -> TraceSummary:
    """Reads a trace (`*.xplane.pb`) and the programs beside it (`*.hlo.txt`).

    Raises:
      ConfigError: it cannot be read, or no operation ran in it.
    """
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    counts: Counter[tuple[str, str]] = Counter()
    host: defaultdict[str, float] = defaultdict(float)
    spans: list[tuple[float, float]] = []
    threads = 0
    with warnings.catch_warnings():
        # jaxlib 0.11.2 makes a type without a module when the first number of an event is read. Python warns
        # of it, and if that warning is an error (`python -W error`, pytest), jaxlib ends the process.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__ attribute", DeprecationWarning)
        for line in _lines(file):
            events: list[_Event] = []
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    key = str(stats.get("hlo_module", "")), str(stats["hlo_op"])
                    events.append((event.start_ns, event.start_ns + event.duration_ns, key))
                elif event.name in PHASES:
                    host[event.name] += event.duration_ns / 1e9
            threads += bool(events)
            for (start, end, key), own in _own_times(events):
                seconds[key] += own / 1e9
                counts[key] += 1
                spans.append((start, end))
    if not spans:
        raise ConfigError(f"{file} holds no operation of a device")
    programs = _programs(file.parent)
    operations = []
    for (module, name), total in sorted(seconds.items(), key=lambda item: -item[1]):
        phase, source = programs[module].place(name) if module in programs else (OTHER, "")
        operations.append(Operation(name, phase, source, total, counts[module, name]))
    span = max(end for _, end in spans) - min(spans)[0]
    phases = {name: sum(x.seconds for x in operations if x.phase == name) for name in (*PHASES, OTHER)}
    return TraceSummary(
        file=str(file),
        seconds=span / 1e9,
        busy=_covered_nanoseconds(spans) / max(span, 1),
        threads=threads,
        named=bool(programs),
        phases={name: x for name, x in phases.items() if x or name in host},
        host=dict(host),
        operations=operations,
    )


def _lines(file: Path) -> Iterator[Any]:
    """The threads and streams of a trace."""
    from jax.profiler import ProfileData

    with errors_as(ConfigError, f"{file} cannot be read", RuntimeError, ValueError, OSError):
        open_regular(file).close()
        planes = list(ProfileData.from_file(str(file)).planes)
    for plane in planes:
        yield from plane.lines


def _programs(folder: Path) -> dict[str, PhaseMap]:
    programs = {}
    for path in folder.glob(f"*{_TEXT}"):
        try:
            text = read_bytes(path, LARGEST_LOG).decode(errors="replace")
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
        programs[path.name.removesuffix(_TEXT)] = PhaseMap(ProgramText.parse(text))
    return programs


def _own_times(events: list[_Event]) -> Iterator[tuple[_Event, float]]:
    """Each event of one thread with its nanoseconds, without the events inside it."""
    inside = [0.0] * len(events)
    events = sorted(events, key=lambda event: (event[0], -event[1]))
    open_events: list[int] = []
    for index, (start, end, _) in enumerate(events):
        while open_events and events[open_events[-1]][1] <= start:
            open_events.pop()
        if open_events:
            inside[open_events[-1]] += end - start
        open_events.append(index)
    for event, nested in zip(events, inside, strict=True):
        yield event, max(event[1] - event[0] - nested, 0.0)


def _covered_nanoseconds(spans: Iterable[tuple[float, float]]) -> float:
    """Nanoseconds in at least one of the spans."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total
