"""Processes that know different things decide alike, by what all have heard."""

from __future__ import annotations

import numpy as np

from jaxrl.metrics.clock import Clock
from jaxrl.parallel.coordination import Agreement


class Wire:
    """Puts what two agreements tell side by side, as the devices of two processes do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: dict[int, tuple[float, ...]] = {}
        self.ends = [Agreement(Clock(lambda: self.now), self._gather(index)) for index in range(2)]

    def _gather(self, index: int):
        def gather(numbers):
            self.told[index] = tuple(numbers)
            return index

        return gather

    def exchange(self) -> None:
        for end in self.ends:
            end.tell()
        rows = np.array([self.told[0], self.told[1]], np.float32)
        for end in self.ends:
            end.hear(rows)


def test_one_process_knows_at_once() -> None:
    now = [0.0]
    alone = Agreement(Clock(lambda: now[0]))
    alone.begin()
    assert (alone.signum, alone.wall_seconds, alone.iterations) == (None, 0.0, 1)
    now[0] = 3.0
    alone.took(1, 0.1)
    alone.interruption.signum = 15
    assert (alone.signum, alone.wall_seconds, alone.iterations) == (15, 3.0, 2)


def test_a_signal_to_one_counts_once_all_have_heard_of_it() -> None:
    wire = Wire()
    one, other = wire.ends
    wire.exchange()
    one.interruption.signum = 15
    assert (one.signum, other.signum) == (None, None)
    wire.exchange()
    assert (one.signum, other.signum) == (15, 15)
    # All end with its exit code, whatever comes later.
    assert other.interruption.exit_code == 143
    other.interruption.signum = 2
    wire.exchange()
    assert (one.signum, other.signum, other.interruption.name) == (15, 15, "SIGTERM")


def test_time_is_the_longest_and_pace_the_slowest() -> None:
    wire = Wire()
    one, other = wire.ends
    wire.now = 5.0
    one._clock.carry_over(100.0, trained=90.0)
    for _ in range(3):
        one.took(one._pace.iterations, 0.001)
        other.took(other._pace.iterations, 0.3)
    assert (one.trained_seconds, one.wall_seconds, one.iterations) == (0.0, 0.0, 1)
    wire.exchange()
    assert one.trained_seconds == other.trained_seconds == 90.0
    assert one.wall_seconds == other.wall_seconds == 5.0
    assert one.closing_seconds == other.closing_seconds > 0
    assert one.iterations == other.iterations == other._pace.iterations < one._pace.iterations
