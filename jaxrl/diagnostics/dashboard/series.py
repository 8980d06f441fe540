"""Curves of metrics, read from metrics.jsonl as it grows, with few points of long ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from etils import epath

from jaxrl.runs.records import MetricsTail, parse_row
from jaxrl.runs.stage_ends import StageEnds, StageLines

_MOST_POINTS = 2000  # of a curve, that are kept
_BAND_POINTS = 300  # of the curve of several seeds


class MetricSeries:
    """A metric of one run, every `stride`-th row that has it; only these lines are parsed.

    Where more rows come than are kept, every second point goes and the stride doubles.
    """

    def __init__(self, folder: epath.Path, metric: str) -> None:
        self._tail = MetricsTail(folder)
        self._metric = metric
        self._key = f'"{metric}":'.encode()
        self._clear()

    def _clear(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._seen = 0
        self._stride = 1
        self._ends = StageEnds()
        self._stage_lines = StageLines()

    @property
    def stage_ends(self) -> set[float]:
        """The steps up to now at which stages of the run ended, see `Run.stage_ends`."""
        return self._ends.steps

    def poll(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values up to now, float64; raises OSError if the file cannot be read."""
        replaced, lines = self._tail.poll_lines()
        if replaced:
            self._clear()
        self._add_stages(lines)
        lines = [line for line in lines if self._key in line]
        while not self._points and len(lines) >= 2 * _MOST_POINTS * self._stride:
            self._stride *= 2
        for line in lines:
            self._seen += 1
            if (self._seen - 1) % self._stride:
                continue
            row = parse_row(line)
            if row is not None and row.get(self._metric) is not None:
                self._points.append((row["step"], row[self._metric]))
            if len(self._points) >= 2 * _MOST_POINTS:
                self._points = self._points[::2]
                self._stride *= 2
        points = np.array(sorted(self._points), np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]

    def _add_stages(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            for part in self._stage_lines.changed_lines(line):
                if (row := parse_row(part)) is not None:
                    self._ends.add(row)


def band(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, list[float]]:
    """The mean, the lowest and the highest of several curves at common steps, linear in between.

    Each curve counts within its own steps. One curve keeps its own points.
    """
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return {"steps": [], "mean": [], "low": [], "high": []}
    if len(curves) == 1:
        steps, values = curves[0]
        every = -(-len(steps) // (2 * _BAND_POINTS))
        x = steps[::every].tolist()
        y = values[::every].tolist()
        return {"steps": x, "mean": y, "low": y, "high": y}
    first = min(x[0] for x, _ in curves)
    last = max(x[-1] for x, _ in curves)
    steps = np.linspace(first, last, _BAND_POINTS)
    rows = np.stack([np.interp(steps, x, y, np.nan, np.nan) for x, y in curves])
    covered = ~np.all(np.isnan(rows), axis=0)
    steps = steps[covered]
    rows = rows[:, covered]
    means = np.nanmean(rows, 0)
    lows = np.nanmin(rows, 0)
    highs = np.nanmax(rows, 0)
    return {"steps": steps.tolist(), "mean": means.tolist(), "low": lows.tolist(), "high": highs.tolist()}
