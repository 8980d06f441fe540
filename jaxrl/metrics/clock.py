"""The time that each phase of a run takes, and how much work to dispatch at once."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator


class Clock:
    """Measures wall-clock seconds per phase and in total.

    Phases may be nested; time counts for the innermost one only, so that phases add up.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Starts the clock; `now` is a monotonic clock in seconds."""
        self._now = now
        self._started = self._switched = now()
        self._carried = 0.0
        self._open_phases: list[str] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._lap_start: defaultdict[tuple[str, str], float] = defaultdict(float)

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Counts the seconds inside the `with` block for `phase`."""
        self._settle()
        self._open_phases.append(phase)
        try:
            yield
        finally:
            self._settle()
            self._open_phases.pop()

    def seconds(self, phase: str) -> float:
        """Seconds spent in `phase` since this process started the clock; 0.0 if it never ran."""
        self._settle()
        return self._seconds.get(phase, 0.0)

    def total(self) -> float:
        """Seconds since the start of the run, including those before a resume."""
        return self._carried + self._now() - self._started

    def carry_over(self, seconds: float) -> None:
        """Adds `total()` as it was in the checkpoint that is resumed."""
        self._carried += seconds

    def lap(self, phase: str, of: str = "") -> float:
        """Seconds of `phase` since the previous call with the same arguments."""
        now = self.seconds(phase)
        window = now - self._lap_start[phase, of]
        self._lap_start[phase, of] = now
        return window

    def rate(self, phase: str, steps: int) -> float:
        """Steps per second of `phase`, over the window since the previous call for it.

        Args:
          phase: the phase whose seconds count.
          steps: environment steps made in the window.

        Returns:
          The rate; NaN if no time has passed.
        """
        window = self.lap(phase, "rate")
        return steps / window if window > 0 else float("nan")

    def row(self) -> dict[str, float]:
        """Seconds of each phase of training and in total, as logged."""
        phases = ("compile", "train", "evaluate", "save")
        return {f"time/{phase}_seconds": self.seconds(phase) for phase in phases} | {
            "time/seconds": self.total()
        }

    def still(self) -> tuple[str | None, float]:
        """(phase, seconds since this clock was last used); for any thread, and not itself a use."""
        phases = self._open_phases[-1:]
        return phases[0] if phases else None, self._now() - self._switched

    def _settle(self) -> None:
        now = self._now()
        if self._open_phases:
            self._seconds[self._open_phases[-1]] += now - self._switched
        self._switched = now


class Pace:
    """Decides how many iterations to dispatch at once, so that a dispatch lasts about `seconds`.

    Long enough that the host costs nothing, short enough to respond soon to a signal or a time budget. The
    results do not depend on it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.iterations = 1

    def took(self, iterations: int, seconds: float) -> None:
        """Records the seconds of a dispatch of `iterations`; the next ones at most double."""
        if iterations and seconds > 0:
            fitting = int(self._seconds * iterations / seconds)
            self.iterations = max(1, min(fitting, 2 * self.iterations))
