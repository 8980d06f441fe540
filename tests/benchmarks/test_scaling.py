"""The prediction of `benchmarks/scaling.py`, by hand."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.benchmarks.loading import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scaling() -> ModuleType:
    return load("scaling")


def test_exchange_of_the_documented_example(scaling: ModuleType) -> None:
    # docs/scaling.md: 35 x (2 + 20) us, and 2 x 4,277,440 x 31 / 32 bytes at 200 GB/s.
    assert scaling.exchange_seconds((4, 8), 35, 4_277_440) == pytest.approx(0.770e-3 + 0.0414e-3, rel=1e-3)


def test_rings_are_half_as_long(scaling: ModuleType) -> None:
    seconds = scaling.exchange_seconds((16, 16), 1, 0)
    assert seconds == pytest.approx(2e-6 + 32e-6)
    assert scaling.exchange_seconds((8, 16), 1, 0) == pytest.approx(2e-6 + (14 + 16) * 1e-6)


def test_one_chip_exchanges_nothing_over_links(scaling: ModuleType) -> None:
    assert scaling.exchange_seconds((1, 1), 3, 10**9) == pytest.approx(3 * 2e-6)


def test_efficiency_is_within_a_series(scaling: ModuleType) -> None:
    rows = [
        {"scaling": "weak", "cores": 8, "steps per second": 800.0},
        {"scaling": "weak", "cores": 32, "steps per second": 1600.0},
        {"scaling": "strong", "cores": 8, "steps per second": 80.0},
        {"scaling": "strong", "cores": 16, "steps per second": 160.0},
    ]
    efficiency = [row["efficiency"] for row in scaling._with_efficiency(rows, "cores")]
    assert efficiency == [1.0, 0.5, 1.0, 1.0]


def test_table_in_the_documentation_follows_the_arithmetic(scaling: ModuleType) -> None:
    text = (ROOT / "docs/scaling.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if " | v5e:" in line]
    assert len(lines) >= 6
    for line in lines:
        shape = tuple(int(n) for n in line[1].removeprefix("v5e:").split("x"))
        times, size = int(line[4]), int(line[5].replace(",", ""))
        assert 1e3 * scaling.exchange_seconds(shape, times, size) == pytest.approx(float(line[7]), rel=5e-3)
        environments, compute, exchange = int(line[3].replace(",", "")), float(line[6]), float(line[7])
        rate = float(line[8].removesuffix(" M"))
        assert environments * 64 / (compute + exchange) / 1e3 == pytest.approx(rate, rel=0.02)
