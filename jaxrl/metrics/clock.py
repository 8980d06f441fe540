"""The time that each phase of a run takes."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

# Enough for a final checkpoint of 100 MB on a local disk.
_LAST_SAVE_SECONDS = 3.0


class Clock:
    """Measures wall-clock seconds per phase and in total.

    Phases may be nested; time counts for the innermost one only, so that phases add up.
    """

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, process_started: float | None = None
    ) -> None:
        """Starts the clock.

        Args:
          now: a monotonic clock in seconds.
          process_started: the time of `now` from which `wall_seconds` counts; None for this call.
        """
        self._now = now
        self._started = self._switched = now()
        self._process_started = self._started if process_started is None else process_started
        self._carried = self._trained_before = 0.0
        self._warm_up: float | None = None
        self._longest: defaultdict[str, float] = defaultdict(float)
        self._open_phases: list[str] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._lap_start: defaultdict[tuple[str, str], float] = defaultdict(float)

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Counts the seconds inside the `with` block for `phase`."""
        self._settle()
        self._open_phases.append(phase)
        began = self._switched
        try:
            yield
        finally:
            self._settle()
            self._open_phases.pop()
            self._longest[phase] = max(self._longest[phase], self._switched - began)

    def seconds(self, phase: str) -> float:
        """Seconds spent in `phase` since this process started the clock; 0.0 if it never ran."""
        self._settle()
        return self._seconds.get(phase, 0.0)

    def total(self) -> float:
        """Seconds since the start of the run, including the time before a resume."""
        return self._carried + self._now() - self._started

    def carry_over(self, seconds: float, trained: float = 0.0) -> None:
        """Adds `total()` and `trained_seconds()` as they were in the checkpoint that is resumed."""
        self._carried += seconds
        self._trained_before += trained

    def end_warm_up(self) -> None:
        """Starts counting `trained_seconds`, at the first call."""
        if self._warm_up is None:
            self._warm_up = self.seconds("train")

    def trained_seconds(self) -> float:
        """Seconds of the phase "train" after the warm-up, including the time before a resume."""
        since = 0.0 if self._warm_up is None else self.seconds("train") - self._warm_up
        return self._trained_before + since

    def wall_seconds(self) -> float:
        """Seconds since the start of the process, without the time before a resume."""
        return self._now() - self._process_started

    def closing_seconds(self) -> float:
        """Seconds that the run would take to end, estimated from the longest of each phase so far.

        Two dispatches in flight, then an evaluation, if there was one before, and a checkpoint that is waited
        for to its end: training waits only for the first part of the others.
        """
        save = max(_LAST_SAVE_SECONDS, 4 * self._longest["save"])
        return 2 * self._longest["train"] + self._longest["evaluate"] + save

    def lap(self, phase: str, of: str = "") -> float:
        """Seconds of `phase` since the previous call with the same arguments."""
        now = self.seconds(phase)
        window = now - self._lap_start[phase, of]
        self._lap_start[phase, of] = now
        return window

    def rate(self, phase: str, steps: int) -> float:
        """Steps per second of `phase` since the previous call for it; NaN if no time has passed."""
        window = self.lap(phase, "rate")
        return steps / window if window > 0 else float("nan")

    def row(self) -> dict[str, float]:
        """The row of metrics: seconds of each phase of training and in total."""
        phases = ("compile", "train", "evaluate", "save")
        return {f"time/{phase}_seconds": self.seconds(phase) for phase in phases} | {
            "time/seconds": self.total(),
            "time/budget_seconds": self.trained_seconds(),
        }

    def idle(self) -> tuple[str | None, float]:
        """(phase, seconds since this clock was last used); callable from any thread, and not itself a use."""
        phases = self._open_phases[-1:]
        return phases[0] if phases else None, self._now() - self._switched

    def _settle(self) -> None:
        now = self._now()
        if self._open_phases:
            self._seconds[self._open_phases[-1]] += now - self._switched
        self._switched = now
