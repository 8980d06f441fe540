"""Numbers, paces, sizes and durations as text."""

from __future__ import annotations

import pytest

from jaxrl.config import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0"),
        (float("nan"), "nan"),
        (0.00025, "2.50e-04"),
        (-0.0123, "-0.0123"),
        (1.5, "1.500"),
        (475.0, "475.0"),
        (-1500.0, "-1,500"),
        (2e6, "2.00e+06"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert text.number(value) == shown


def test_one_is_singular() -> None:
    assert [text.counted(n, "episode") for n in (0, 1, 1200)] == ["0 episodes", "1 episode", "1,200 episodes"]


def test_paces_sizes_and_durations() -> None:
    assert [text.pace(x) for x in (950.0, 25_340.0, 999_960.0, 1.2e6)] == ["950", "25.3k", "1.00M", "1.20M"]
    assert [text.size(x) for x in (None, 950, 12_340, 6e6, 999.6e6, 1.3e9)] == (
        ["-", "950 B", "12.3 kB", "6.00 MB", "1000 MB", "1.30 GB"]
    )
    assert [text.clock(x) for x in (None, 9.9, 75, 3725)] == ["-:--", "0:09", "1:15", "1:02:05"]
    assert [text.seconds(x) for x in (0.42, 12, 59.7, 200, 7500)] == [
        "0.4 s",
        "12 s",
        "1 min 00 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
