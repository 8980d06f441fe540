"""What the display of a run knows: the latest metrics, their history, the progress and the phase."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_CURVE_KEYS = ("episode/return", "eval/return", "episode/length", "time/steps_per_second")
_MAX_CURVE_POINTS = 512
# Rows over which the pace is measured: long enough to hold evaluations and saves as well as training.
_PACE_ROWS = 20


class Curve:
    """A metric's whole history, at most `_MAX_CURVE_POINTS` points: halved by averaging pairs when full."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._pending: list[float] = []
        self._merge = 1

    def append(self, value: float) -> None:
        """Adds one value; those that are not finite leave no mark."""
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._merge:
            return
        self._points.append(sum(self._pending) / len(self._pending))
        self._pending.clear()
        if len(self._points) == _MAX_CURVE_POINTS:
            self._points = [(a + b) / 2 for a, b in zip(self._points[::2], self._points[1::2], strict=True)]
            self._merge *= 2

    def sparkline(self, width: int, glyphs: str) -> str:
        """The history as at most `width` characters, from `glyphs[0]` (lowest) to `glyphs[-1]` (highest)."""
        points = self._points
        count = min(width, len(points))
        edges = [i * len(points) // count for i in range(count + 1)] if count else []
        means = [sum(points[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
        if not means:
            return ""
        low, span = min(means), max(means) - min(means)
        top = len(glyphs) - 1
        return "".join(glyphs[round((x - low) / span * top) if span else 0] for x in means)


@dataclass
class Board:
    """State of one run's display.

    Attributes:
      title, subtitle: what is trained, and on what.
      total_steps: budget in environment steps, or None.
      total_seconds: budget in seconds, or None; training ends at whichever comes first.
      now: a monotonic clock in seconds.
      steps: environment steps at the latest row.
      latest: the latest value of every metric.
      curves: histories of the metrics that are drawn.
      phase, phase_since: what is being done, since when.
    """

    title: str
    subtitle: str
    total_steps: int | None
    total_seconds: float | None
    now: Callable[[], float] = time.monotonic
    steps: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=lambda: {key: Curve() for key in _CURVE_KEYS})
    phase: str = "starting"
    phase_since: float = 0.0
    finished: bool = False  # time stands still from then on

    def __post_init__(self) -> None:
        self._started = self.phase_since = self.now()
        self._seconds_before = 0.0
        self._rows: deque[tuple[float, int]] = deque(maxlen=_PACE_ROWS)

    def update(self, step: int, scalars: Mapping[str, float]) -> None:
        """Takes in one row of metrics."""
        self.steps = step
        self.latest.update(scalars)
        for key, curve in self.curves.items():
            if key in scalars:
                curve.append(scalars[key])
        self._rows.append((self.now(), step))
        if "time/seconds" in scalars:
            self._seconds_before = scalars["time/seconds"] - (self.now() - self._started)

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self.phase, self.phase_since = phase, self.now()

    def finish(self, conclusion: str) -> None:
        """Ends the run."""
        self.enter(conclusion)
        self.finished = True

    def start_at(self, step: int) -> None:
        """Counts steps from `step`, the one that was restored."""
        self.steps = step

    def elapsed(self) -> float:
        """Seconds since the start of the run, those before a resume included once a row has told them."""
        end = self.phase_since if self.finished else self.now()
        return max(self._seconds_before, 0.0) + end - self._started

    def fraction(self) -> float | None:
        """How much of the budget is used, in [0, 1]; None without a budget."""
        parts = []
        if self.total_steps:
            parts.append(self.steps / self.total_steps)
        if self.total_seconds:
            parts.append(self.elapsed() / self.total_seconds)
        return min(max(parts), 1.0) if parts else None

    def remaining(self) -> float | None:
        """Seconds until a budget is used up at the present pace; None while that is unknown."""
        if self.finished:
            return 0.0
        candidates = []
        pace = self._pace()
        if self.total_steps and pace:
            since_row = self.now() - self._rows[-1][0]
            candidates.append((self.total_steps - self.steps) / pace - since_row)
        if self.total_seconds:
            candidates.append(self.total_seconds - self.elapsed())
        return max(min(candidates), 0.0) if candidates else None

    def _pace(self) -> float | None:
        """Steps per second of wall-clock time, evaluations and saves included."""
        if len(self._rows) > 1:
            (first, start), (last, end) = self._rows[0], self._rows[-1]
            if last > first and end > start:
                return (end - start) / (last - first)
        pace = self.latest.get("time/steps_per_second", math.nan)
        return pace if pace > 0 and self._rows else None
