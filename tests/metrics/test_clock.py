"""The clock, on a hand-turned time source."""

from __future__ import annotations

import math

import pytest

from jaxrl.metrics.clock import Clock


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def test_phases_accumulate(time: Time) -> None:
    clock = Clock(time)
    for seconds in (2.0, 3.0):
        with clock.measure("train"):
            time.now += seconds
        time.now += 10.0
    assert clock.seconds("train") == 5.0
    assert clock.seconds("save") == 0.0
    assert clock.total() == 25.0


def test_a_second_counts_for_the_innermost_phase_only(time: Time) -> None:
    clock = Clock(time)
    with clock.measure("train"):
        time.now += 1.0
        with clock.measure("compile"):
            time.now += 4.0
        time.now += 2.0
    assert (clock.seconds("train"), clock.seconds("compile")) == (3.0, 4.0)


def test_an_open_phase_is_already_counted(time: Time) -> None:
    clock = Clock(time)
    with clock.measure("compile"):
        time.now += 1.5
        assert clock.seconds("compile") == 1.5
        time.now += 1.0
    assert clock.seconds("compile") == 2.5


def test_a_phase_ends_with_an_exception(time: Time) -> None:
    clock = Clock(time)

    def fail() -> None:
        with clock.measure("save"):
            time.now += 1.0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    time.now += 5.0
    assert clock.seconds("save") == 1.0


def test_total_continues_after_a_resume(time: Time) -> None:
    clock = Clock(time)
    time.now += 3.0
    clock.carry_over(60.0)
    assert clock.total() == 63.0
    assert clock.seconds("train") == 0.0


def test_rate_is_over_the_window_and_without_other_phases(time: Time) -> None:
    clock = Clock(time)
    with clock.measure("train"):
        time.now += 2.0
    assert clock.rate("train", 100) == 50.0
    with clock.measure("evaluate"):
        time.now += 50.0
    with clock.measure("train"):
        time.now += 1.0
    assert clock.rate("train", 100) == 100.0
    assert math.isnan(clock.rate("train", 100))


def test_laps_are_since_the_last_one_of_the_same_name(time: Time) -> None:
    clock = Clock(time)
    with clock.measure("train"):
        time.now += 2.0
        assert clock.lap("train") == 2.0  # of an open phase, too
        time.now += 1.0
    assert clock.lap("train") == 1.0
    assert clock.lap("train") == 0.0
    assert clock.lap("train", "another reader") == 3.0
    assert clock.rate("train", 30) == 10.0  # which reads laps of its own
