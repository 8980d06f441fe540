"""The state of a run for its display: latest metrics, their histories, progress and phase."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxrl.config import text

RETURN = "episode/return"
EVALUATION = "eval/return"
CUT_OFF = "eval/cut_off"  # in rows of evaluations that had such episodes
# In the rows of evaluations that play both ways.
MODES = (("eval/greedy/return", "greedy"), ("eval/sampled/return", "sampled"))
LENGTH = "episode/length"
PACE = "time/steps_per_second"
ITERATION = "time/seconds_per_iteration"
# Of training, and of a curriculum.
STAGES = ("stage", "curriculum/stage")
_MAX_POINTS = 512
# Rows over which the pace is measured: long enough to hold evaluations and saves as well as training.
_PACE_ROWS = 20
_MARK = "┊"
_MAX_MARKS = 8


def metric_text(key: str, value: float | None) -> str:
    """A metric as displays show it: the number of a stage is a whole one."""
    return text.count(value) if key in STAGES and value is not None else text.number(value)


class History:
    """All values of a metric as at most `_MAX_POINTS` points: when they are full, pairs are averaged.

    Marks stand between two values; of many the latest are kept.
    """

    def __init__(self) -> None:
        self._points: list[float] = []
        self._pending: list[float] = []
        self._merge = 1
        self._marks: deque[int] = deque(maxlen=_MAX_MARKS)  # numbers of values before each

    def append(self, value: float) -> None:
        """Adds a value; NaN and infinities are left out."""
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._merge:
            return
        self._points.append(sum(self._pending) / len(self._pending))
        self._pending.clear()
        if len(self._points) == _MAX_POINTS:
            self._points = [(a + b) / 2 for a, b in zip(self._points[::2], self._points[1::2], strict=True)]
            self._merge *= 2

    def mark(self) -> None:
        """Sets a mark between the values so far and later ones."""
        values = self._merge * len(self._points) + len(self._pending)
        if values and values not in self._marks:
            self._marks.append(values)

    def sparkline(self, width: int, glyphs: str = "▁▂▃▄▅▆▇█") -> str:
        """The history in at most `width` characters, from `glyphs[0]` (lowest) to `glyphs[-1]` (highest).

        If there is room, a dotted line stands at each mark.
        """
        points = self._points
        marks = self._marks if width > 2 * len(self._marks) else ()
        count = min(width - len(marks), len(points))
        edges = [i * len(points) // count for i in range(count + 1)] if count else []
        means = [sum(points[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
        if not means:
            return ""
        low = min(means)
        span = max(means) - low
        top = len(glyphs) - 1
        line = [glyphs[round((x - low) / span * top) if span else 0] for x in means]
        for values in marks:
            column = round(values / self._merge * count / len(points))
            line[max(min(column, count), 1) - 1] += _MARK
        return "".join(line)


@dataclass
class RunProgress:
    """State of one run's display.

    Attributes:
      title: the task.
      subtitle: network, number of environments, devices.
      total_steps: budget in units of the run's clock, or None.
      total_seconds: budget in seconds of training, or None; training ends with the first budget used up.
      highlights: (metric, label) of the numbers to show.
      clock: the unit of the clock: "steps" of environments, or "updates".
      steps: the clock at the latest row.
      histories: of the metrics that are drawn.
      phase, phase_since: the present activity, and the time at which it began.
      finished: True if it has ended; the elapsed time then stands still.
    """

    title: str
    subtitle: str
    total_steps: int | None
    total_seconds: float | None
    highlights: Sequence[tuple[str, str]] = ()
    clock: str = "steps"
    now: Callable[[], float] = time.monotonic
    steps: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    histories: dict[str, History] = field(
        default_factory=lambda: {key: History() for key in (RETURN, EVALUATION, LENGTH, PACE, *dict(MODES))}
    )
    phase: str = "starting"
    phase_since: float = 0.0
    finished: bool = False

    def __post_init__(self) -> None:
        self._started = self.phase_since = self.now()
        self._seconds_before = 0.0
        self._budget_used = 0.0
        self._budget_at = self.now()
        self._rows: deque[tuple[float, int]] = deque(maxlen=_PACE_ROWS)

    @property
    def evaluations(self) -> tuple[tuple[str, str], ...]:
        """(metric, label) of the returns of evaluations: of both modes if both are played."""
        return MODES if MODES[0][0] in self.latest else ((EVALUATION, "eval"),)

    def describe(self, title: str, total_steps: int | None, total_seconds: float | None, clock: str) -> None:
        """Sets title, budgets and clock, if they are known only after the start."""
        self.title = title
        self.clock = clock
        self.total_steps = total_steps
        self.total_seconds = total_seconds

    def show(self, highlights: Sequence[tuple[str, str]]) -> None:
        """Chooses the numbers to show, as (metric, label)."""
        self.highlights = highlights

    def update(self, step: int, scalars: Mapping[str, float], at: float | None = None) -> None:
        """Adds a row of metrics, logged at time `at` of the clock (default: now)."""
        at = self.now() if at is None else at
        self.steps = step
        changed = any(scalars.get(key, x) != x for key in STAGES if (x := self.latest.get(key)) is not None)
        if EVALUATION in scalars:
            self.latest.pop(CUT_OFF, None)
        self.latest.update(scalars)
        for key, history in self.histories.items():
            if changed:
                history.mark()
            if key in scalars:
                history.append(scalars[key])
        self._rows.append((at, step))
        if "time/seconds" in scalars:
            self._seconds_before = scalars["time/seconds"] - (at - self._started)
        if "time/budget_seconds" in scalars:
            self._budget_used = scalars["time/budget_seconds"]
            self._budget_at = at

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self.phase = phase
        self.phase_since = self.now()
        self.finished = False

    def finish(self, conclusion: str, at: float | None = None) -> None:
        """Ends the run, at time `at` of the clock (default: now)."""
        self.phase = conclusion
        self.phase_since = self.now() if at is None else at
        self.finished = True

    def start_at(self, step: int) -> None:
        """Counts from the step that a checkpoint restored."""
        self.steps = step

    def elapsed(self) -> float:
        """Seconds of training up to now; before the first row, seconds since the start of the display."""
        end = self.phase_since if self.finished else self.now()
        return max(self._seconds_before + end - self._started, 0.0)

    def budget_used(self) -> float:
        """Seconds of training that count for the budget, up to now."""
        trains = self.phase == "training" and not self.finished
        since = max(self.now() - max(self._budget_at, self.phase_since), 0.0) if trains else 0.0
        return self._budget_used + since

    def fraction(self) -> float | None:
        """The share of the budget that is used, in [0, 1]; None without a budget."""
        budgets = ((self.steps, self.total_steps), (self.budget_used(), self.total_seconds))
        parts = [used / budget for used, budget in budgets if budget]
        return min(max(parts), 1.0) if parts else None

    def remaining(self) -> float | None:
        """Seconds until a budget is used up at the present pace; None if unknown, and after the end."""
        if self.finished:
            return None
        candidates = []
        if self.total_steps and (pace := self._pace()):
            since_row = self.now() - self._rows[-1][0]
            candidates.append((self.total_steps - self.steps) / pace - since_row)
        if self.total_seconds:
            candidates.append(self.total_seconds - self.budget_used())
        return max(min(candidates), 0.0) if candidates else None

    def _pace(self) -> float | None:
        """Steps per second of wall-clock time, evaluations and saves included."""
        if self._rows:
            (first, start), (last, end) = self._rows[0], self._rows[-1]
            if last > first and end > start:
                return (end - start) / (last - first)
        pace = self.latest.get(PACE, math.nan)
        return pace if pace > 0 and self._rows else None
