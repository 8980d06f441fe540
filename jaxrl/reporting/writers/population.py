"""Rows of metrics of a whole population, from the rows of its members."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl.reporting.writers.base import Writer

_PACE = "time/steps_per_second"
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
    the best, the pace is that of all together, and `population/training` counts the members that train.
    Members that have reached their end count with their last row; those that failed do not count.
    """

    def __init__(self, members: int, writer: Writer) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._training = set(range(members))
        self._failed: set[int] = set()
        self._latest: dict[tuple[int, str], Mapping[str, float]] = {}
        self._open: dict[tuple[int, str], set[int]] = {}
        self._resumed_at = -1
        self._written = -1

    def of(self, member: int) -> Writer:
        """The writer that passes on the rows of one member."""
        return _MemberRows(self, member)

    def leave(self, member: int, failed: bool) -> None:
        """Removes a member, which writes no more rows."""
        with self._lock:
            self._training.discard(member)
            if failed:
                self._failed.add(member)
            for step, kind in sorted(self._open):
                self._close(step, kind)

    def write(self, member: int, step: int, scalars: Mapping[str, float]) -> None:
        """Adds a row of training or of an evaluation of one member; other rows are ignored."""
        kind = "eval" if "eval/return" in scalars else "train" if _PACE in scalars else ""
        if not kind:
            return
        with self._lock:
            self._latest[member, kind] = scalars
            self._open.setdefault((step, kind), set()).add(member)
            self._close(step, kind)

    def resume_from(self, step: int) -> None:
        """Records the step from which a member resumes; the population resumes from the latest of these."""
        with self._lock:
            if step > self._resumed_at:
                self._resumed_at = step
                self._writer.resume_from(step)

    def status(self, member: int, phase: str) -> None:
        """Announces the phase of the first member that trains."""
        if self._training and member == min(self._training):
            self._writer.status(phase)

    def _close(self, step: int, kind: str) -> None:
        """Writes the row of a step, if no member is missing and it comes after the last one."""
        if (step, kind) not in self._open or self._training - self._open[step, kind]:
            return
        del self._open[step, kind]
        if step >= self._written:
            self._written = step
            rows = [row for (m, k), row in self._latest.items() if k == kind and m not in self._failed]
            self._writer.write(step, _summary(rows) | {"population/training": len(self._training)})


class _MemberRows(Writer):
    def __init__(self, rows: PopulationRows, member: int) -> None:
        self._rows = rows
        self._member = member

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._rows.write(self._member, step, scalars)

    def resume_from(self, step: int) -> None:
        self._rows.resume_from(step)

    def status(self, phase: str) -> None:
        self._rows.status(self._member, phase)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Nothing to do: the population has a summary of its own."""


def _summary(rows: list[Mapping[str, float]]) -> dict[str, float]:
    found = {}
    for name in {name: None for row in rows for name in row}:
        values = np.array([row.get(name, np.nan) for row in rows], np.float64)
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
