"""Processes that know different things decide alike; the pace of dispatches fits its seconds."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl.metrics.clock import Clock
from jaxrl.training.coordination import Coordinator


class Wire:
    """Puts the values of two coordinators side by side, as the devices of two processes do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: dict[int, tuple[float, ...]] = {}
        self.ends = [Coordinator(Clock(lambda: self.now), self._gather(index)) for index in range(2)]

    def _gather(self, index: int):
        def gather(numbers):
            self.sent[index] = tuple(numbers)
            return index

        return gather

    def exchange(self) -> None:
        for end in self.ends:
            end.send()
        rows = np.array([self.sent[0], self.sent[1]], np.float32)
        for end in self.ends:
            end.receive(rows)


def test_one_process_knows_at_once() -> None:
    now = [0.0]
    alone = Coordinator(Clock(lambda: now[0]))
    alone.begin()
    assert (alone.signum, alone.status.wall_seconds, alone.status.iterations) == (None, 0.0, 1)
    now[0] = 3.0
    alone.record_dispatch(1, 0.1)
    alone.interruption.signum = 15
    assert (alone.signum, alone.status.wall_seconds, alone.status.iterations) == (15, 3.0, 2)


def test_a_signal_to_one_counts_once_all_have_received_it() -> None:
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
        one.record_dispatch(one._iterations, 0.001)
        other.record_dispatch(other._iterations, 0.3)
    assert (one.status.trained_seconds, one.status.wall_seconds, one.status.iterations) == (0.0, 0.0, 1)
    wire.exchange()
    assert one.status.trained_seconds == other.status.trained_seconds == 90.0
    assert one.status.wall_seconds == other.status.wall_seconds == 5.0
    assert one.status.closing_seconds == other.status.closing_seconds > 0
    assert one.status.iterations == other.status.iterations == other._iterations < one._iterations


def test_pace_fills_its_seconds() -> None:
    alone = Coordinator(Clock(), dispatch_seconds=0.5)
    assert alone.status.iterations == 1
    for seconds_each, expected in [
        (0.01, [2, 4, 8, 16, 32, 50, 50]),  # at most doubled: the first time measured may be a short one
        (0.1, [5, 5]),  # slower at once, so that a signal does not wait
        (3.0, [1, 1]),  # never none
        (0.2, [2, 2]),
    ]:
        for iterations in expected:
            before = alone.status.iterations
            alone.record_dispatch(before, seconds_each * before)
            assert alone.status.iterations == iterations


@pytest.mark.parametrize(("iterations", "seconds"), [(0, 1.0), (4, 0.0)])
def test_pace_learns_nothing_from_nothing(iterations: int, seconds: float) -> None:
    alone = Coordinator(Clock(), dispatch_seconds=0.5)
    alone.record_dispatch(iterations, seconds)
    assert alone.status.iterations == 1
