"""Rows of metrics of a whole population, from the rows of its members."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxrl.config.data_files import is_number, parse_line, read_lines
from jaxrl.reporting.writers.writer import EVALUATION, Writer

# The step of a row, and its kind: training or an evaluation.
_Key = tuple[int, str]
Rows = Sequence[Mapping[str, float]]
# Rows of a member's file that a resume looks at: members are never further apart than some iterations.
_LOOKED_BACK = 64

_PACE = "time/steps_per_second"
# Metrics of the process, by the beginnings of their names: of members that train, as others stand still.
_OF_PROCESS = ("steps", "time/", "host/", "device/")
# Metrics reported with quartiles and the best beside the median: (metric, prefix of the names).
_SPREAD = (("episode/return", "population/return"), ("eval/return", "population/eval"))
HIGHLIGHTS = (
    ("population/eval_lower", "eval 25%"),
    ("population/eval_best", "best eval"),
    ("population/eval_upper", "eval 75%"),
    ("population/return_lower", "return 25%"),
    ("population/return_best", "best return"),
    ("population/return_upper", "return 75%"),
    ("population/training", "training"),
)


class PopulationRows:
    """Writes a row once every member that trains has written its own of the same step.

    Each metric is the median over members, `population/return_*` and `population/eval_*` are quartiles and
    the best, the pace is for all together, and `population/training` counts the members that trained
    until there. Members that have reached their end count with their last row, except in steps, times and
    speeds; failed ones do not.

    A row that a signal cut short, since some members had written theirs and others had not, is written after
    the resume, with the rows that the members kept.
    """

    def __init__(self, members: int, writer: Writer, path: Path | None = None) -> None:
        """`path` is the `metrics.jsonl` of the population, which a resume looks at; None if there is none."""
        self._writer = writer
        self._path = path
        self._lock = threading.Lock()
        self._training = set(range(members))
        self._failed: set[int] = set()
        self._open: dict[_Key, dict[int, Mapping[str, float]]] = {}
        # Of each member: its last row of each kind, and the rows that it wrote before it was resumed.
        self._last: dict[tuple[int, str], Mapping[str, float]] = {}
        self._earlier: dict[int, Mapping[_Key, Mapping[str, float]]] = {}
        self._written_before: Set[_Key] = frozenset()
        self._resumed_at = -1
        self._written = -1

    def of(self, member: int, path: Path | None = None) -> Writer:
        """The writer that passes on the rows of one member, whose own are in `path`."""
        return _MemberRows(self, member, path)

    def leave(self, member: int, failed: bool) -> None:
        """Removes a member that has ended for good: it writes no more rows, not even after a resume."""
        with self._lock:
            self._training.discard(member)
            if failed:
                self._failed.add(member)
            self._close_all()

    def write(self, member: int, step: int, scalars: Mapping[str, float]) -> None:
        """Adds a row of training or of an evaluation of one member; other rows are ignored."""
        kind = _kind(scalars)
        if not kind:
            return
        with self._lock:
            self._last[member, kind] = scalars
            self._open.setdefault((step, kind), {})[member] = scalars
            self._close((step, kind))

    def resume_from(self, member: int, step: int, path: Path | None) -> None:
        """Records the step from which a member resumes; the population resumes from the latest of these."""
        with self._lock:
            self._earlier[member] = _rows_until(path, step)
            for (_, kind), row in self._earlier[member].items():
                self._last[member, kind] = row
            if step > self._resumed_at:
                self._resumed_at = step
                self._writer.resume_from(step)
                self._written_before = _rows_until(self._path, step).keys()
            self._close_all()

    def status(self, member: int, phase: str) -> None:
        """Announces the phase of the first member that trains."""
        if self._training and member == min(self._training):
            self._writer.status(phase)

    def _close_all(self) -> None:
        for key in sorted(self._open):
            self._close(key)

    def _close(self, key: _Key) -> None:
        """Writes the row of a step, if no member is missing and it comes after the last one."""
        before = {member: rows[key] for member, rows in self._earlier.items() if key in rows}
        found = before | self._open[key]
        if not self._training <= found.keys():
            return
        del self._open[key]
        step, kind = key
        if step < self._written or key in self._written_before:
            return
        self._written = step
        # Ended members count with their last row.
        ended = {m: row for (m, of), row in self._last.items() if of == kind}
        rows, training = (
            [row for m, row in sorted(of.items()) if m not in self._failed] for of in (ended | found, found)
        )
        self._writer.write(step, _summary(rows, training) | {"population/training": len(training)})


@dataclass(frozen=True)
class _MemberRows(Writer):
    rows: PopulationRows
    member: int
    path: Path | None

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.write(self.member, step, scalars)

    def resume_from(self, step: int) -> None:
        self.rows.resume_from(self.member, step, self.path)

    def status(self, phase: str) -> None:
        self.rows.status(self.member, phase)


def _kind(scalars: Mapping[str, float]) -> str:
    return "eval" if EVALUATION in scalars else "train" if _PACE in scalars else ""


def _rows_until(path: Path | None, step: int) -> dict[_Key, Mapping[str, float]]:
    """The last rows of a file of metrics up to a step, by step and kind."""
    if path is None or not path.exists():
        return {}
    rows = [row for line in read_lines(path) if (row := parse_line(line)) and is_number(row.get("step"))]
    kept = [row for row in rows if row["step"] <= step and _kind(row)][-_LOOKED_BACK:]
    return {
        (int(row["step"]), _kind(row)): {
            name: float("nan") if x is None else x for name, x in row.items() if name not in ("step", "time")
        }
        for row in kept
    }


def _summary(rows: Rows, training: Rows) -> dict[str, float]:
    """The numbers of a population, from the rows of all members and of those that train."""
    found = {}
    for name in {name: None for row in rows for name in row}:
        counted = (training or rows) if name.startswith(_OF_PROCESS) else rows
        values = np.array([row.get(name, np.nan) for row in counted], np.float64)
        finite = values[np.isfinite(values)]
        if not len(finite):
            found[name] = float("nan")
            continue
        found[name] = float(finite.sum() if name == _PACE else np.median(finite))
        for metric, prefix in _SPREAD:
            if name == metric:
                found[f"{prefix}_lower"], found[f"{prefix}_upper"] = np.percentile(finite, (25, 75)).tolist()
                found[f"{prefix}_best"] = float(finite.max())
    return found
