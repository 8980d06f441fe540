"""The model of `benchmarks/simulated_scale.py`, by hand."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.loading import load


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return load("simulated_scale")


def record(parameters: int = 60_000) -> dict[str, Any]:
    """10 ms of steps, and 10 us for each environment."""
    return {"parameters": parameters, "seconds": {"4096": 0.05096, "64": 0.01064}}


def test_the_time_is_the_line_through_two_programs(scale: ModuleType) -> None:
    for environments in (64, 512, 4096):
        found = scale.iteration("h200", record(), 1, environments)
        assert found.total == pytest.approx(0.01 + 1e-5 * environments)
        assert (found.start, found.links) == (0.0, 0.0)


def test_exchanges_within_a_host_and_between_hosts(scale: ModuleType) -> None:
    assert scale.exchange_seconds("h200", 1, 7, 10**6) == (0.0, 0.0)
    start, links = scale.exchange_seconds("h200", 8, 7, 10**6)
    assert start == pytest.approx(7 * 10e-6)
    assert links == pytest.approx(2e6 * 7 / 8 / 450e9)
    # Seven other hosts, each eighth of the vector on its own: there and back.
    start, links = scale.exchange_seconds("h200", 64, 7, 10**6)
    assert start == pytest.approx(7 * (10e-6 + 14 * 5e-6))
    assert links == pytest.approx(2e6 * 7 / 8 / 450e9 + 2e6 / 8 * 7 / 8 / 50e9)


def test_exchanges_of_the_programs_that_the_page_has_counted(scale: ModuleType) -> None:
    # 100.7 million parameters and four minibatches, on H200: 10, 1.50 GiB; in parts 4 + 10 + 5, 1.69 GiB.
    for sharded, counted, size in ((False, 10, 1.50), (True, 19, 1.69)):
        times, moved = scale.exchanges(100_700_000, 4, sharded)
        assert times == counted
        assert moved / 2**30 == pytest.approx(size, abs=5e-3)
    # configs/ppo.py, 4 epochs of 8 minibatches, on CPUs.
    times, moved = scale.exchanges(33_411, 32, False)
    assert times == 38
    assert moved == pytest.approx(4_277_440, rel=1e-3)


def test_strong_scaling_ends_where_half_of_the_devices_wait(scale: ModuleType) -> None:
    # One device: 50.96 ms. n devices: 10 ms + 40.96 ms / n, so that at 4 a device has 0.63 of its speed, at 8
    # 0.42, and exchanges are some microseconds.
    assert scale.end_of("h200", record()) == (4, "steps")
    found = scale.efficiencies("h200", record(), strong=True)
    assert found[4] == pytest.approx(50.96 / 4 / (10 + 40.96 / 4), rel=0.01)
    weak = scale.efficiencies("h200", record(), strong=False)
    assert weak[64] == pytest.approx(50.96 / (50.96 + 0.80), rel=1e-3)
